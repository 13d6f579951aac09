"""Evaluation of queries on a few series that need no store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.evaluation import Evaluation
from controlplane.telemetry.promql.grammar import parse
from controlplane.telemetry.promql.values import Value, Vector
from controlplane.telemetry.store.columns import Columns, Ints
from controlplane.telemetry.store.matching import Matcher
from controlplane.telemetry.store.reader import Selection
from wire.write_body import Series

MINUTE_MS = 60_000


def evaluated(
    series: Sequence[Series],
    query: str,
    times_ms: Sequence[int] | Ints,
    budget: Budget | None = None,
    bounds_ms: tuple[int, int] | None = None,
) -> Value:
    def select(matchers: Sequence[Matcher], after_ms: int, until_ms: int, counted: Callable[[int], None]) -> Selection:
        chosen = [each for each in series if all(one.holds(each.labels.get(one.name, "")) for one in matchers)]
        rows = [
            (row, at, value)
            for row, each in enumerate(chosen)
            for at, value in each.samples
            if after_ms < at <= until_ms
        ]
        counted(len(rows))
        alive = sorted({row for row, _, _ in rows})
        columns = Columns(
            np.array([alive.index(row) for row, _, _ in rows], np.int64),
            np.array([at for _, at, _ in rows], np.int64),
            np.array([value for _, _, value in rows], np.float64),
        )
        return Selection([dict(chosen[row].labels) for row in alive], columns)

    own = budget or Budget(10**7, 60)
    return Evaluation(np.array(times_ms, np.int64), select, own, bounds_ms=bounds_ms).evaluate(parse(query))


def rows_of(value: Value) -> list[list[float | None]]:
    """The values of each row at each step; None where it has none."""
    assert isinstance(value, Vector)
    return [
        [number if here else None for number, here in zip(row, present, strict=True)]
        for row, present in zip(value.values.tolist(), value.present.tolist(), strict=True)
    ]


def value_of(series: Sequence[Series], query: str, at_ms: int) -> float | None:
    """The value of the only row at one moment."""
    rows = rows_of(evaluated(series, query, [at_ms]))
    assert len(rows) <= 1
    return rows[0][0] if rows else None
