"""Sums over the rows of groups, one row after the other as in Prometheus, whose rounding is part of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from controlplane.telemetry.store.columns import Bools, Floats, Ints

# How often a query that takes too long is noticed.
PLACES_BETWEEN_LOOKS = 1000
# Of the largest sum of parts that long doubles are exact enough for.
_LEAST_SHARE = 1e-7
_MAX_FINITE = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Members:
    """The rows of all groups, those of a group side by side from `starts` on; `counts`: present ones, groups × steps.

    `touch` raises where the query has taken too long.
    """

    values: Floats
    present: Bools
    starts: Ints
    counts: Ints
    touch: Callable[[int], None]

    def or_else(self, value: float) -> Floats:
        return np.where(self.present, self.values, value)

    def places(self) -> Iterator[tuple[Ints, Floats, Bools]]:
        """All groups' first rows, then their second ones, and so on: numbers of groups, values, presence."""
        sizes = np.diff(np.append(self.starts, len(self.values)))
        for place in range(int(sizes.max())):
            if place % PLACES_BETWEEN_LOOKS == 0:
                self.touch(0)
            groups = np.flatnonzero(sizes > place)
            rows = self.starts[groups] + place
            yield groups, self.values[rows], self.present[rows]


def total(members: Members, *, overflows: bool = True) -> Floats:
    """In long doubles, but compensated as in Prometheus where most of the sum cancels out.

    `overflows`: it is infinite from where on a double cannot hold it, whatever comes after.
    """
    values = members.or_else(0.0)
    sums = np.add.reduceat(values, members.starts, axis=0, dtype=np.longdouble)
    sizes = np.add.reduceat(np.abs(values), members.starts, axis=0, dtype=np.longdouble)
    unsure = needs_compensation(sums, sizes, overflows=overflows)
    result: Floats = np.where(unsure, _compensated(members), sums) if unsure.any() else sums
    # What the compensation adds is 0 at least, so that none is -0.
    return result + 0.0


def needs_compensation(sums: Floats, sizes: Floats, *, overflows: bool = True) -> Bools:
    """Where sums in long doubles are not what Prometheus says; `sizes`: the sums of the parts' absolute values."""
    cancels = np.abs(sums) < _LEAST_SHARE * sizes
    result: Bools = np.where(sizes > _MAX_FINITE, overflows, cancels)
    return result


def _compensated(members: Members) -> Floats:
    sums, rests = np.zeros((2, *members.counts.shape))
    for groups, values, present in members.places():
        own, lost = sums[groups], rests[groups]
        add_compensated(np.where(present, values, 0.0), own, lost)
        sums[groups], rests[groups] = own, lost
    result: Floats = sums + rests
    return result


def add_compensated(terms: Floats, sums: Floats, rests: Floats) -> None:
    """Kahan's sum as Neumaier improved it, in place; `rests` is what the sums have lost."""
    added = sums + terms
    lost = np.where(np.abs(sums) >= np.abs(terms), (sums - added) + terms, (terms - added) + sums)
    rests[:] = np.where(np.isinf(added), 0.0, rests + lost)
    sums[:] = added


def variance(members: Members) -> Floats:
    """Of the population, by Welford's method."""
    counts, means, squares = np.zeros((3, *members.counts.shape))
    for groups, values, present in members.places():
        counts[groups] += present
        off = np.where(present, values - means[groups], 0.0)
        means[groups] += np.where(present, off / counts[groups], 0.0)
        squares[groups] += np.where(present, off * (values - means[groups]), 0.0)
    result: Floats = squares / members.counts
    return result
