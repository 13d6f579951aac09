"""A metric store in memory, for one unit test of rules: what our own engine reads from, and records into."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery
from controlplane.telemetry.promql.evaluation import Evaluation
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.promql.values import Identity, Scalar, Vector, identity
from controlplane.telemetry.results import Sample, samples_of
from controlplane.telemetry.store.columns import Columns
from controlplane.telemetry.store.matching import Counted, Matcher
from controlplane.telemetry.store.reader import Selection

Labels = dict[str, str]


@dataclass
class _Line:
    labels: Labels
    times_ms: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Scratch:
    """Series by their labels; times in ms from 0 on. Nothing later than `now_ms` is seen."""

    def __init__(self, budget: Budget) -> None:
        self.now_ms, self._budget = 0, budget
        self._lines: dict[Identity, _Line] = {}

    def fill(self, labels: Labels, values: Sequence[float | None], interval_ms: int) -> bool:
        """One value an interval. False where there is such a series already."""
        if identity(labels) in self._lines:
            return False
        known = [(number * interval_ms, value) for number, value in enumerate(values) if value is not None]
        line = _Line(labels, [time_ms for time_ms, _ in known], [value for _, value in known])
        self._lines[identity(labels)] = line
        return True

    def record(self, labels: Mapping[str, str], at_ms: int, value: float) -> None:
        """A sample; of each series those of one rule come in their order."""
        line = self._lines.setdefault(identity(dict(labels)), _Line(dict(labels)))
        line.times_ms.append(at_ms)
        line.values.append(value)

    def ranged(self, promql: str, times_ms: Sequence[int]) -> list[list[Sample]]:
        """The same at many moments at once, of each its samples. Raises QueryError."""
        times = np.array(times_ms, np.int64)
        value = Evaluation(times, self.select, self._budget).evaluate(parse(promql))
        if isinstance(value, Scalar):
            return [[Sample({}, at_ms, number)] for at_ms, number in zip(times_ms, value.values.tolist(), strict=True)]
        if not isinstance(value, Vector):
            raise BadQuery("give a query whose result is a scalar or an instant vector")
        return [
            [Sample(value.labels[row], at_ms, float(value.values[row, step])) for row in np.flatnonzero(here).tolist()]
            for step, (at_ms, here) in enumerate(zip(times_ms, value.present.T, strict=True))
        ]

    def instant(self, promql: str, at_ms: int) -> list[Sample]:
        """As telemetry.query.instant. Raises QueryError."""
        value = Evaluation(np.array([at_ms], np.int64), self.select, self._budget).evaluate(parse(promql))
        if not isinstance(value, Scalar | Vector):
            raise BadQuery("give a query whose result is a scalar or an instant vector")
        return samples_of(value, at_ms)

    def select(self, matchers: Sequence[Matcher], after_ms: int, until_ms: int, counted: Counted) -> Selection:
        """As telemetry.store.Reader.select."""
        labels: list[Labels] = []
        lengths, times, values = list[int](), list[int](), list[float]()
        for line in self._lines.values():
            if not all(matcher.holds(line.labels.get(matcher.name, "")) for matcher in matchers):
                continue
            first, last = (bisect_right(line.times_ms, time) for time in (after_ms, min(until_ms, self.now_ms)))
            counted(max(last - first, 0))
            if first < last:
                labels.append(line.labels)
                lengths.append(last - first)
                times += line.times_ms[first:last]
                values += line.values[first:last]
        rows = np.repeat(np.arange(len(labels)), lengths)
        return Selection(labels, Columns(rows, np.array(times, np.int64), np.array(values, np.float64)))
