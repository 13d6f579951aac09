"""What a chart, a query of it and a layer of charts are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.functional import Promise

from controlplane.telemetry.promql.written import one_of
from dashboards.spans import Span
from dashboards.units import Unit

Text = Promise | str
Look = Literal["drawn", "dotted", "dashed"]
# What a viewer chose, as pairs of a label and its value.
Only = tuple[tuple[str, str], ...]
# Names of the nodes that hold the engines of the pool that was chosen.
Hosts = tuple[str, ...]
# A label, and its value or each that it may have.
Matcher = tuple[str, str | Hosts]
FILTERS = ("pool", "tenant", "node")
WINDOW, ONLY = "$window", "$only"


def matchers_of(matchers: Iterable[Matcher]) -> str:
    """As they stand within the braces of a selector."""
    return ",".join(label + _condition(value) for label, value in matchers)


def _condition(value: str | Hosts) -> str:
    if isinstance(value, str):
        return f"={json.dumps(value, ensure_ascii=False)}"
    return f"=~{one_of(value)}"


def written(promql: str, window: str, matchers: str) -> str:
    """The text with its range in place of `$window`, and with matchers, or none, in place of `$only`."""
    text = promql.replace(WINDOW, window)
    return text.replace(ONLY, matchers) if matchers else text.replace(f",{ONLY}", "").replace(f"{{{ONLY}}}", "")


@dataclass(frozen=True)
class Query:
    """One PromQL text, `$window` in place of the range and `$only` in place of what a viewer chose.

    `recorded` asks recorded series for the same; empty: nothing records it. `stat` names its lines where a chart has
    several queries. The one to look at first is `drawn` through.
    """

    promql: str
    recorded: str = ""
    stat: Text = ""
    look: Look = "drawn"

    def over(self, span: Span, matchers: Sequence[Matcher] = ()) -> str:
        """Empty where nothing records this and a span is drawn from recorded series, and where nothing can match."""
        if not all(value for _label, value in matchers):
            return ""
        promql = self.recorded if span.is_recorded else self.promql
        return written(promql, f"{span.window_seconds}s", matchers_of(matchers))


@dataclass(frozen=True)
class Fold:
    """Lines that differ by `label` alone become one: `by` says its value at each step, and hovering names all."""

    label: str
    by: Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Chart:
    """`by`: the labels that name a line, but where their value is `unsaid`.

    `takes`: the labels of its series that a viewer may choose by; `recorded_takes` those of recorded series, if these
    have others. `recorded_note` stands in place of `note` where recorded series are drawn, if those show something
    else. `absent`: why nothing may have been measured, and what to do.
    """

    name: str
    title: Text
    note: Text
    unit: Unit
    by: tuple[str, ...]
    queries: tuple[Query, ...]
    takes: tuple[str, ...]
    absent: Text
    recorded_takes: tuple[str, ...] | None = None
    fold: Fold | None = None
    recorded_note: Text | None = None
    unsaid: str = ""
    # Where the axis begins and what it reaches at least, so that noise does not look like a mountain.
    lowest: float = 0
    highest: float | None = None
    threshold: float | None = None

    @property
    def is_recorded(self) -> bool:
        return any(query.recorded for query in self.queries)

    def note_over(self, span: Span) -> str:
        return str(self.recorded_note if span.is_recorded and self.recorded_note else self.note)

    def labels_over(self, span: Span) -> tuple[str, ...]:
        """What a viewer may choose by."""
        if span.is_recorded and self.recorded_takes is not None:
            return self.recorded_takes
        return self.takes

    def follows_by_hosts(self, span: Span, only: Only) -> bool:
        """Whether its series know the chosen pool only by the nodes that hold the pool's engines."""
        labels = self.labels_over(span)
        return "pool" in dict(only) and "pool" not in labels and "node" in labels

    def chosen(self, span: Span, only: Only, hosts: Hosts) -> tuple[Matcher, ...]:
        """Of what a viewer chose, what its series know."""
        known = tuple(pair for pair in only if pair[0] in self.labels_over(span))
        return (*known, ("node", hosts)) if self.follows_by_hosts(span, only) else known


@dataclass(frozen=True)
class Section:
    """Charts that are read together, side by side."""

    title: Text
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Layer:
    """One page of charts. `path`: its address below that of the dashboards."""

    name: str
    path: str
    title: Text
    lead: Text
    sections: Sequence[Section]

    @property
    def view(self) -> str:
        """The name of its page among those of the dashboards."""
        return self.name if self.path else "home"

    @property
    def charts(self) -> tuple[Chart, ...]:
        return tuple(chart for section in self.sections for chart in section.charts)
