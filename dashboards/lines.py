"""Series of a query as lines of a chart: one value a step, and none where nothing was measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.telemetry.query import Series
from dashboards.charts import Chart, Fold, Query

Value = float | None


@dataclass(frozen=True)
class Line:
    """`values` and `notes` (what hovering adds, where there is anything) stand at the steps of the reading."""

    name: str
    query: Query
    labels: Mapping[str, str]
    values: Sequence[Value]
    notes: Sequence[str] = field(default=())

    @property
    def key(self) -> str:
        """The same in every reading of its chart, in every language."""
        return f"{self.name}|{self.query.look}"

    @property
    def peak(self) -> float:
        return max((value for value in self.values if value is not None), default=-math.inf)


def lines_of(chart: Chart, query: Query, series: Iterable[Series], times_ms: Sequence[int]) -> list[Line]:
    """The lines of one query of a chart, at `times_ms`; those that `folded` makes one still stand apart."""
    return [Line(_name(chart, each.labels), query, each.labels, _at(each, times_ms)) for each in series]


def folded(chart: Chart, lines: Iterable[Line]) -> list[Line]:
    """One line a name and query, where a chart's lines differ by its folded label."""
    if chart.fold is None:
        return list(lines)
    groups: dict[tuple[str, Query], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.name, line.query), []).append(line)
    return [_one(chart.fold, members) for members in groups.values()]


def _one(fold: Fold, members: list[Line]) -> Line:
    first = members[0]
    labels = {label: value for label, value in first.labels.items() if label != fold.label}
    # In the order of numbers, where the label's values are numbers.
    members.sort(key=lambda line: (len(line.labels.get(fold.label, "")), line.labels.get(fold.label, "")))
    steps = list(zip(*(line.values for line in members), strict=True))
    values = [fold.by(known) if (known := [value for value in step if value is not None]) else None for step in steps]
    if fold.label not in first.labels:
        # Recorded series are folded already.
        return Line(first.name, first.query, labels, values)
    notes = [" ".join("–" if value is None else f"{value:.0f}" for value in step) for step in steps]
    return Line(first.name, first.query, labels, values, notes)


def _at(series: Series, times_ms: Sequence[int]) -> Sequence[Value]:
    # Nearly all have a value at each step, and then nothing is looked up.
    if series.times_ms == times_ms and all(map(math.isfinite, series.values)):
        return series.values
    known = dict(zip(series.times_ms, series.values, strict=True))
    return [value if (value := known.get(at)) is not None and math.isfinite(value) else None for at in times_ms]


def _name(chart: Chart, labels: Mapping[str, str]) -> str:
    return " · ".join(labels[label] for label in chart.by if labels.get(label, "") not in ("", chart.unsaid)) or "–"
