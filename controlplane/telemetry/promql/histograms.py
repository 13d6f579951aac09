"""histogram_quantile over classic buckets. Source: prometheus/promql/quantile.go, version 3."""

from __future__ import annotations

import math
import re
from collections import defaultdict

import numpy as np

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.values import Identity, Labels, Scalar, Vector, dropped, empty, identity
from controlplane.telemetry.store.columns import Bools, Floats, Ints

_BUCKET = "le"
# Relative; smaller differences between neighbouring buckets are rounding, not observations.
_TOLERANCE = 1e-12
_MIN_NORMAL, _MAX_FINITE = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
_HEXADECIMAL = re.compile("[-+]?0x.*p.*", re.IGNORECASE)


def histogram_quantile(quantile: Scalar, buckets: Vector) -> Vector:
    """One row a histogram; series without a bucket's bound are passed over."""
    steps = buckets.values.shape[1]
    groups: defaultdict[Identity, list[tuple[float, int]]] = defaultdict(list)
    labels_of: dict[Identity, Labels] = {}
    for row, labels in enumerate(buckets.labels):
        bound = _bound(labels.get(_BUCKET, ""))
        if bound is not None:
            # Buckets of metrics with different names are never of one histogram.
            own = dropped(labels, (_BUCKET,))
            groups[identity(own)].append((bound, row))
            labels_of[identity(own)] = own
    if not groups:
        return empty(steps)
    values = np.full((len(groups), steps), np.nan)
    present = np.zeros((len(groups), steps), np.bool_)
    for place, members in enumerate(groups.values()):
        members.sort(key=lambda member: member[0])
        rows = [row for _, row in members]
        bounds = np.array([bound for bound, _ in members])
        here = buckets.present[rows]
        present[place] = here.any(axis=0)
        # Steps that have the same buckets are worked out together: nearly always all of them.
        for pattern in np.unique(here[:, present[place]], axis=1).T:
            where = present[place] & (here == pattern[:, None]).all(axis=0)
            counts = buckets.values[rows][pattern][:, where]
            values[place, where] = _quantiles(quantile.values[where], bounds[pattern], counts)
    return Vector(list(labels_of.values()), values, present).without_name()


def _bound(text: str) -> float | None:
    """A number as Go reads it. Raises Unanswerable for what is one there, but no bound that this evaluates."""
    if not text.isascii() or text != text.strip():
        return None
    if _HEXADECIMAL.fullmatch(text):
        raise Unanswerable(f'a bucket that ends at le="{text}" is not supported')
    try:
        bound = float(text)
    except ValueError:
        return None
    if math.isnan(bound):
        raise Unanswerable(f'a bucket cannot end at le="{text}"')
    # Digits too many for a double are no number to Go.
    return None if math.isinf(bound) and "n" not in text.lower() else bound


def _quantiles(wanted: Floats, bounds: Floats, counts: Floats) -> Floats:
    """`bounds` ascending; `counts` are bounds × steps, cumulative."""
    bounds, first = np.unique(bounds, return_index=True)
    counts = np.add.reduceat(counts, first, axis=0)
    if not len(bounds) or bounds[-1] != np.inf or len(bounds) < 2:
        return _outside(wanted, np.full(len(wanted), np.nan))
    counts = _monotonic(counts)
    observations = counts[-1]
    with np.errstate(all="ignore"):
        rank = wanted * observations
        bucket = _search(counts, rank)
        steps = np.arange(len(wanted))
        below = np.maximum(bucket - 1, 0)
        start = np.where(bucket > 0, bounds[below], 0.0)
        before = np.where(bucket > 0, counts[below, steps], 0.0)
        inside = counts[bucket, steps] - before
        result = start + (bounds[bucket] - start) * ((rank - before) / inside)
    result = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], result)
    result = np.where(bucket == len(bounds) - 1, bounds[-2], result)
    return _outside(wanted, np.where(observations == 0, np.nan, result))


def _search(counts: Floats, rank: Floats) -> Ints:
    """The first bucket that reaches the rank, the last one where none before does.

    By halves: where counts are NaN and so in no order, Prometheus finds what this finds.
    """
    low, high = np.zeros(len(rank), np.int64), np.full(len(rank), len(counts) - 1)
    while np.any(low < high):
        middle = (low + high) // 2
        reached = counts[middle, np.arange(len(rank))] >= rank
        low, high = np.where(reached | (low >= high), low, middle + 1), np.where(reached, middle, high)
    return low


def _outside(wanted: Floats, result: Floats) -> Floats:
    result = np.where(wanted < 0, -np.inf, np.where(wanted > 1, np.inf, result))
    return np.where(np.isnan(wanted), np.nan, result)


def _monotonic(counts: Floats) -> Floats:
    """Cumulative counts that never fall: scrapes of buckets are not of one moment."""
    counts = counts.copy()
    for bucket in range(1, len(counts)):
        before, now = counts[bucket - 1], counts[bucket]
        counts[bucket] = np.where((now < before) | _almost_equal(before, now), before, now)
    return counts


def _almost_equal(first: Floats, second: Floats) -> Bools:
    with np.errstate(all="ignore"):
        difference, total = np.abs(first - second), np.abs(first) + np.abs(second)
        tiny = (first == 0) | (second == 0) | (total < _MIN_NORMAL)
        near = np.where(
            tiny, difference < _TOLERANCE * _MIN_NORMAL, difference / np.minimum(total, _MAX_FINITE) < _TOLERANCE
        )
    result: Bools = (first == second) | near
    return result
