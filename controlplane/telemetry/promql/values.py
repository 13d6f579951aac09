"""What an expression evaluates to, for all steps of a query at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.store.columns import Bools, Floats, Ints
from wire.write_body import METRIC_NAME

Labels = dict[str, str]
Identity = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number a step."""

    values: Floats


@dataclass(frozen=True, slots=True)
class Vector:
    """Rows of label sets; `values` and `present` are rows × steps. A value that is not present means nothing."""

    labels: list[Labels]
    values: Floats
    present: Bools

    def without_name(self) -> Vector:
        return distinct(Vector([dropped(labels, (METRIC_NAME,)) for labels in self.labels], self.values, self.present))

    def with_values(self, values: Floats) -> Vector:
        return Vector(self.labels, values, self.present)

    def rows(self, where: Ints) -> Vector:
        return Vector([self.labels[row] for row in where.tolist()], self.values[where], self.present[where])


class Windows(NamedTuple):
    """A range selector: for each row and step the samples from `lo` to `hi` (exclusive) of `times_ms` and `values`.

    `ends_ms`: where each step's window ends. It begins `range_ms` before, which itself does not belong to it.
    """

    labels: list[Labels]
    times_ms: Ints
    values: Floats
    lo: Ints
    hi: Ints
    ends_ms: Ints
    range_ms: int


Value = Scalar | Vector | Windows | str


def identity(labels: Labels) -> Identity:
    return tuple(sorted(labels.items()))


def dropped(labels: Labels, names: Iterable[str]) -> Labels:
    return {name: value for name, value in labels.items() if name not in names}


def kept(labels: Labels, names: Iterable[str]) -> Labels:
    return {name: labels[name] for name in names if name in labels}


def empty(steps: int) -> Vector:
    return Vector([], np.empty((0, steps)), np.empty((0, steps), np.bool_))


def distinct(vector: Vector) -> Vector:
    """Rows with the same labels as one, where no two are present at the same step. Raises Unanswerable."""
    first: dict[Identity, int] = {}
    place = [first.setdefault(identity(labels), row) for row, labels in enumerate(vector.labels)]
    if len(first) == len(vector.labels):
        return vector
    values, present = vector.values.copy(), vector.present.copy()
    for row, into in enumerate(place):
        if row == into:
            continue
        if np.any(present[into] & vector.present[row]):
            raise Unanswerable("vector cannot contain metrics with the same labelset")
        values[into] = np.where(vector.present[row], vector.values[row], values[into])
        present[into] |= vector.present[row]
    return Vector(vector.labels, values, present).rows(np.array(list(first.values())))
