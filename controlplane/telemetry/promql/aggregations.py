"""Aggregations over rows: one result row a group of labels, for all steps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from controlplane.telemetry.promql.counting import count_values
from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.grouping import Grouping, numbered
from controlplane.telemetry.promql.summation import Members, total, variance
from controlplane.telemetry.promql.values import Labels, Scalar, Vector, empty
from controlplane.telemetry.promql.windows import nan_first, quantile_of_sorted
from controlplane.telemetry.store.columns import Floats, Ints

_INT64_END = 2.0**63


@dataclass(frozen=True)
class _Groups:
    """`rows` puts members of a group side by side; a group's first stands at `starts`."""

    labels: list[Labels]
    rows: Ints
    starts: Ints

    def members(self) -> Iterator[Ints]:
        return iter(np.split(self.rows, self.starts[1:]))


def _grouped(vector: Vector, grouping: Grouping) -> _Groups:
    labels, numbers = numbered(vector.labels, grouping)
    rows = np.argsort(numbers, kind="stable")
    return _Groups(labels, rows, np.searchsorted(numbers[rows], np.arange(len(labels))))


_SIMPLE: dict[str, Callable[[Members], Floats]] = {
    "sum": total,
    "avg": lambda members: total(members, overflows=False) / members.counts,
    "count": lambda members: members.counts.astype(np.float64),
    "group": lambda members: np.ones(members.counts.shape),
    "min": lambda members: np.fmin.reduceat(members.or_else(np.nan), members.starts, axis=0),
    "max": lambda members: np.fmax.reduceat(members.or_else(np.nan), members.starts, axis=0),
    "stdvar": variance,
    "stddev": lambda members: np.sqrt(variance(members)),
}
AGGREGATIONS = frozenset({*_SIMPLE, "topk", "bottomk", "quantile", "count_values"})


def aggregate(
    name: str, vector: Vector, grouping: Grouping, parameter: Scalar | str | None, touch: Callable[[int], None]
) -> Vector:
    """`name` is one of AGGREGATIONS; `touch` counts the samples of a result larger than `vector`, and time.

    Raises Unanswerable.
    """
    match parameter:
        case str():
            return count_values(parameter, vector, grouping, touch)
        case Scalar() if name == "quantile":
            return _quantiles(vector, grouping, parameter.values)
        case Scalar():
            return _extremes(vector, grouping, parameter.values, largest=name == "topk")
    if not vector.labels:
        return vector
    groups = _grouped(vector, grouping)
    present = vector.present[groups.rows]
    counts = np.add.reduceat(present, groups.starts, axis=0, dtype=np.int64)
    with np.errstate(all="ignore"):
        values = _SIMPLE[name](Members(vector.values[groups.rows], present, groups.starts, counts, touch))
        return Vector(groups.labels, values.astype(np.float64), counts > 0)


def _quantiles(vector: Vector, grouping: Grouping, wanted: Floats) -> Vector:
    """Linear between the two nearest members; NaN is the smallest value."""
    groups = _grouped(vector, grouping)
    shape = (len(groups.labels), len(wanted))
    values, counts = np.full(shape, np.nan), np.zeros(shape, np.int64)
    for group, members in enumerate(groups.members() if groups.labels else ()):
        present = vector.present[members]
        counts[group] = present.sum(axis=0)
        together = np.take_along_axis(vector.values[members], np.argsort(~present, axis=0, kind="stable"), axis=0)
        # Steps with as many members are worked out together: nearly always all of them.
        for count in np.unique(counts[group][counts[group] > 0]).tolist():
            here = np.flatnonzero(counts[group] == count)
            values[group, here] = quantile_of_sorted(wanted[here], nan_first(together[:count, here].T))
    return Vector(groups.labels, values, counts > 0)


def _extremes(vector: Vector, grouping: Grouping, wanted: Floats, *, largest: bool) -> Vector:
    """topk and bottomk: the rows themselves, those not chosen absent. NaN is chosen last; rows come best first."""
    if not _any_wanted(wanted) or not vector.labels:
        return empty(len(wanted))
    chosen = np.zeros(vector.present.shape, np.bool_)
    order: list[Ints] = []
    for members in _grouped(vector, grouping).members():
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


def _any_wanted(wanted: Floats) -> bool:
    """Whether topk or bottomk has a row to choose at any step. Raises Unanswerable for a number that is no int64."""
    if wanted.max() < 1:
        return False
    if np.isnan(wanted).any():
        raise Unanswerable("Parameter value is NaN")
    if wanted.min() <= -_INT64_END:
        raise Unanswerable(f"Scalar value {_shown(wanted.min())} underflows int64")
    if wanted.max() >= _INT64_END:
        raise Unanswerable(f"Scalar value {_shown(wanted.max())} overflows int64")
    return True


def _shown(value: float) -> str:
    return f"{value:+}".replace("i", "I") if np.isinf(value) else f"{value:g}"
