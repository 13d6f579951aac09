"""Aggregations over rows: one result row a group of labels, for all steps at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.values import Identity, Labels, Scalar, Vector, dropped, empty, identity, kept
from controlplane.telemetry.store.columns import Floats, Ints
from wire.write_body import METRIC_NAME


@dataclass(frozen=True)
class Grouping:
    """`by (names)`, or `without (names)`; no clause is `by ()`."""

    names: Sequence[str] = ()
    without: bool = False

    def of(self, labels: Labels) -> Labels:
        return dropped(labels, (*self.names, METRIC_NAME)) if self.without else kept(labels, self.names)


@dataclass(frozen=True)
class _Groups:
    """`rows` puts members of a group side by side; a group's first stands at `starts`."""

    labels: list[Labels]
    rows: Ints
    starts: Ints


def _grouped(vector: Vector, grouping: Grouping) -> _Groups:
    number_of: dict[Identity, int] = {}
    labels: list[Labels] = []
    numbers = np.empty(len(vector.labels), np.int64)
    for row, own in enumerate(vector.labels):
        group = grouping.of(own)
        numbers[row] = number_of.setdefault(identity(group), len(labels))
        if numbers[row] == len(labels):
            labels.append(group)
    rows = np.argsort(numbers, kind="stable")
    return _Groups(labels, rows, np.searchsorted(numbers[rows], np.arange(len(labels))))


Aggregation = Callable[[Floats, Ints, Ints], Floats]


def _sum(values: Floats, starts: Ints, counts: Ints) -> Floats:
    # In long double, where Prometheus 3 sums with a compensation.
    return np.add.reduceat(values, starts, axis=0, dtype=np.longdouble)


def _average(values: Floats, starts: Ints, counts: Ints) -> Floats:
    return _sum(values, starts, counts) / counts


def _count(values: Floats, starts: Ints, counts: Ints) -> Floats:
    return counts.astype(np.float64)


# What stands where a row is not present, and how the rest is reduced.
_SIMPLE: dict[str, tuple[float, Aggregation]] = {
    "sum": (0.0, _sum),
    "avg": (0.0, _average),
    "count": (0.0, _count),
    "group": (0.0, lambda values, starts, counts: np.ones(counts.shape)),
    "min": (np.nan, lambda values, starts, counts: np.fmin.reduceat(values, starts, axis=0)),
    "max": (np.nan, lambda values, starts, counts: np.fmax.reduceat(values, starts, axis=0)),
}
AGGREGATIONS = frozenset({*_SIMPLE, "topk", "bottomk"})


def aggregate(name: str, vector: Vector, grouping: Grouping, parameter: Scalar | None) -> Vector:
    """`name` is one of AGGREGATIONS. Raises Unanswerable."""
    if not vector.labels:
        return empty(vector.values.shape[1])
    groups = _grouped(vector, grouping)
    if name not in _SIMPLE:
        if parameter is None:
            raise Unanswerable(f"{name} needs a number of elements")
        return _extremes(vector, groups, parameter.values, largest=name == "topk")
    absent, reduce = _SIMPLE[name]
    present = vector.present[groups.rows]
    counts = np.add.reduceat(present, groups.starts, axis=0, dtype=np.int64)
    with np.errstate(all="ignore"):
        values = reduce(np.where(present, vector.values[groups.rows], absent), groups.starts, counts)
        return Vector(groups.labels, values.astype(np.float64), counts > 0)


def _extremes(vector: Vector, groups: _Groups, wanted: Floats, *, largest: bool) -> Vector:
    """topk and bottomk: the rows themselves, those not chosen absent. NaN is chosen last; rows come best first."""
    if not np.all(np.isfinite(wanted)):
        raise Unanswerable("the number of elements of topk and bottomk must be finite")
    chosen = np.zeros(vector.present.shape, np.bool_)
    order: list[Ints] = []
    ends = [*groups.starts[1:].tolist(), len(groups.rows)]
    for start, end in zip(groups.starts.tolist(), ends, strict=True):
        members = groups.rows[start:end]
        values = -vector.values[members] if largest else vector.values[members]
        # Ascending with what is best first, NaN after all numbers, absent ones last of all.
        places = np.lexsort((values, ~vector.present[members]), axis=0)
        ranks = np.empty_like(places)
        np.put_along_axis(ranks, places, np.arange(len(members))[:, None], axis=0)
        chosen[members] = vector.present[members] & (ranks < np.trunc(wanted))
        order.append(members[places[:, 0]])
    rows = np.concatenate(order)
    selected = Vector(vector.labels, vector.values, chosen)
    return selected.rows(rows[chosen[rows].any(axis=1)])
