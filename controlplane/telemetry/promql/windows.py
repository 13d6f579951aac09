"""Functions over range selectors: `rate` and its kin, and `…_over_time`.

Each gives one value a row and step, absent where the window holds too few samples.
Source: prometheus/promql/functions.go, version 3: ranges are open on the left, and extrapolation to a counter's zero
point is capped as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.telemetry.promql.summation import PLACES_BETWEEN_LOOKS, add_compensated, needs_compensation
from controlplane.telemetry.promql.values import Scalar, Vector, Windows
from controlplane.telemetry.store.columns import Bools, Floats, Ints

# An interval longer than the average by this much ends the series there.
_EXTRAPOLATION_THRESHOLD = 1.1
# Samples that are laid out at a time: some 100 MB with what is worked out from them.
_BLOCK_SAMPLES = 1 << 20


def extrapolated(windows: Windows, *, counter: bool, per_second: bool) -> Vector:
    """rate, increase and delta: the change within the window, extended to its edges where samples come near them."""
    first, last = windows.lo, windows.hi - 1
    present = windows.hi - windows.lo >= 2
    first, last = first[present], last[present]
    with np.errstate(invalid="ignore"):
        change = windows.values[last] - windows.values[first]
        if counter:
            change = change + _reset_losses(windows, first, last)
    ends = np.broadcast_to(windows.ends_ms, windows.lo.shape)[present]
    to_start = (windows.times_ms[first] - (ends - windows.range_ms)) / 1000
    to_end = (ends - windows.times_ms[last]) / 1000
    sampled = (windows.times_ms[last] - windows.times_ms[first]) / 1000
    average = sampled / (last - first)
    threshold = average * _EXTRAPOLATION_THRESHOLD
    to_start = np.where(to_start >= threshold, average / 2, to_start)
    if counter:
        # A counter is never negative: it began no earlier than where its line meets zero.
        begin = windows.values[first]
        with np.errstate(all="ignore"):
            to_zero = sampled * (begin / change)
        to_start = np.where((change > 0) & (begin >= 0) & (to_zero < to_start), to_zero, to_start)
    to_end = np.where(to_end >= threshold, average / 2, to_end)
    with np.errstate(all="ignore"):
        factor = (sampled + to_start + to_end) / sampled
        if per_second:
            factor = factor / (windows.range_ms / 1000)
        return spread(windows, present, change * factor)


def instant_rate(windows: Windows) -> Vector:
    """irate: from the last two samples."""
    present = windows.hi - windows.lo >= 2
    last = windows.hi[present] - 1
    before, after = windows.values[last - 1], windows.values[last]
    seconds = (windows.times_ms[last] - windows.times_ms[last - 1]) / 1000
    with np.errstate(all="ignore"):
        return spread(windows, present, np.where(after < before, after, after - before) / seconds)


def instant_delta(windows: Windows) -> Vector:
    """idelta: the last sample less the one before it."""
    present = windows.hi - windows.lo >= 2
    last = windows.hi[present] - 1
    with np.errstate(all="ignore"):
        return spread(windows, present, windows.values[last] - windows.values[last - 1])


def changes(windows: Windows) -> Vector:
    def differs(before: Floats, after: Floats) -> Bools:
        result: Bools = (before != after) & ~(np.isnan(before) & np.isnan(after))
        return result

    return _counted_pairs(windows, differs)


def resets(windows: Windows) -> Vector:
    return _counted_pairs(windows, lambda before, after: after < before)


def sum_over_time(windows: Windows, touch: Callable[[int], None]) -> Vector:
    return _reduced(windows, lambda lo, hi: _sums(windows.values, lo, hi, touch))


def avg_over_time(windows: Windows, touch: Callable[[int], None]) -> Vector:
    return _reduced(windows, lambda lo, hi: _sums(windows.values, lo, hi, touch, overflows=False) / (hi - lo))


def min_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: _reduce(np.fmin, windows.values, lo, hi))


def max_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: _reduce(np.fmax, windows.values, lo, hi))


def count_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: (hi - lo).astype(np.float64))


def present_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: np.ones(len(lo)))


def first_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: windows.values[lo])


def last_over_time(windows: Windows) -> Vector:
    return _reduced(windows, lambda lo, hi: windows.values[hi - 1])


def absent_over_time(labels: Mapping[str, str], windows: Windows) -> Vector:
    """1 where no row has a sample, as one row with `labels`."""
    nothing = ~np.any(windows.hi > windows.lo, axis=0, keepdims=True)
    return Vector([dict(labels)], np.ones(nothing.shape), nothing)


def quantile_over_time(quantile: Scalar, windows: Windows) -> Vector:
    """Linear between the two nearest samples; NaN is the smallest value."""
    present = windows.hi > windows.lo
    wanted = np.broadcast_to(quantile.values, present.shape)[present]
    result = np.empty(len(wanted))
    for chosen, samples in _by_length(windows.values, windows.lo[present], windows.hi[present]):
        result[chosen] = quantile_of_sorted(wanted[chosen], nan_first(samples))
    return spread(windows, present, result)


def nan_first(samples: Floats) -> Floats:
    """Each row ascending, with NaN before all others."""
    ordered = np.sort(samples, axis=1)
    unordered = np.isnan(ordered).sum(axis=1)
    places = (np.arange(ordered.shape[1]) - unordered[:, None]) % ordered.shape[1]
    return np.take_along_axis(ordered, places, axis=1)


def quantile_of_sorted(wanted: Floats, ordered: Floats) -> Floats:
    """The wanted quantile of each row; outside of 0 to 1 it is infinite."""
    count = ordered.shape[1]
    inside = np.clip(np.nan_to_num(wanted), 0, 1)
    rank = inside * (count - 1)
    lower = np.floor(rank).astype(np.int64)
    upper = np.minimum(lower + 1, count - 1)
    weight = rank - np.floor(rank)
    rows = np.arange(len(ordered))
    with np.errstate(invalid="ignore"):
        result = ordered[rows, lower] * (1 - weight) + ordered[rows, upper] * weight
    result = np.where(wanted < 0, -np.inf, np.where(wanted > 1, np.inf, result))
    return np.where(np.isnan(wanted), np.nan, result)


def _by_length(values: Floats, lo: Ints, hi: Ints) -> Iterator[tuple[Ints, Floats]]:
    """Windows of one length at a time, as a matrix with a window a row."""
    lengths = hi - lo
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        rows = max(_BLOCK_SAMPLES // length, 1)
        for first in range(0, len(alike), rows):
            chosen = alike[first : first + rows]
            yield chosen, values[lo[chosen][:, None] + np.arange(length)]


def longest_first(lo: Ints, hi: Ints) -> Ints:
    return np.argsort(lo - hi, kind="stable")


def in_turn(lo: Ints, hi: Ints, touch: Callable[[int], None]) -> Iterator[Ints]:
    """Where all windows' first samples are, then their second ones, and so on; the longest windows come first.

    `touch` raises where the query has taken too long.
    """
    lengths = hi - lo
    places = np.arange(lengths[0] if len(lengths) else 0)
    longer = len(lengths) - np.searchsorted(lengths[::-1], places, side="right")
    for place, count in enumerate(longer.tolist()):
        if place % PLACES_BETWEEN_LOOKS == 0:
            touch(0)
        yield lo[:count] + place


def _sums(values: Floats, lo: Ints, hi: Ints, touch: Callable[[int], None], *, overflows: bool = True) -> Floats:
    """In long doubles, but compensated as in Prometheus where that shows: a sum that cancels out or `overflows`."""
    sums = _reduce(np.add, values, lo, hi, np.longdouble)
    # Without infinities, beside which the rest may overflow all the same.
    sizes = _reduce(np.add, np.where(np.isfinite(values), np.abs(values), 0.0), lo, hi, np.longdouble)
    unsure = np.flatnonzero(needs_compensation(sums, sizes, overflows=overflows))
    unsure = unsure[longest_first(lo[unsure], hi[unsure])]
    totals, rests = np.zeros((2, len(unsure)))
    with np.errstate(all="ignore"):
        for at in in_turn(lo[unsure], hi[unsure], touch):
            add_compensated(values[at], totals[: len(at)], rests[: len(at)])
        sums[unsure] = totals + rests
    # It begins with 0 there, so that none is -0.
    return sums + 0.0


class Block(NamedTuple):
    """Some windows, their samples laid side by side: which windows, where each sample is in the values, where each
    window's first sample stands, and how many it has."""

    chosen: slice
    places: Ints
    starts: Ints
    counts: Ints

    def of_each(self, samples: NDArray[np.floating]) -> NDArray[np.floating]:
        """A window's value for each of its samples."""
        return np.repeat(samples, self.counts)


def blocks(lo: Ints, hi: Ints) -> Iterator[Block]:
    """All windows, none of which may be empty, in parts that bound the memory they take."""
    counts = hi - lo
    until = np.cumsum(counts)
    first = 0
    while first < len(lo):
        done = until[first] - counts[first]
        past = max(int(np.searchsorted(until, done + _BLOCK_SAMPLES, side="right")), first + 1)
        own = counts[first:past]
        starts = np.cumsum(own) - own
        yield Block(slice(first, past), np.arange(own.sum()) + np.repeat(lo[first:past] - starts, own), starts, own)
        first = past


def _counted_pairs(windows: Windows, holds: Callable[[Floats, Floats], Bools]) -> Vector:
    """How many neighbouring samples of each window are such a pair."""
    values = windows.values
    # For each sample, the pairs up to it and the one before it.
    pairs = np.concatenate(([0, 0], np.cumsum(holds(values[:-1], values[1:]))))
    return _reduced(windows, lambda lo, hi: (pairs[hi] - pairs[lo + 1]).astype(np.float64))


def _reset_losses(windows: Windows, first: Ints, last: Ints) -> Floats:
    """What a counter lost by resets between two samples of a row: the value before each reset."""
    values = windows.values
    before = np.zeros(len(values))
    fell = values[1:] < values[:-1]
    before[1:][fell] = values[:-1][fell]
    if not fell.any():
        return np.zeros(len(first))
    return _reduce(np.add, before, first + 1, last + 1, np.longdouble).astype(np.float64)


def _reduce(function: np.ufunc, values: Floats, lo: Ints, hi: Ints, kind: type = np.float64) -> Floats:
    """`function` over values[lo:hi] of each window, none of which may be empty."""
    pairs = np.empty(2 * len(lo), np.int64)
    pairs[0::2], pairs[1::2] = lo, hi
    # A window may end with the values: the place after it must exist.
    padded: NDArray[np.floating] = np.append(values, 0.0).astype(kind)
    with np.errstate(all="ignore"):
        result: Floats = function.reduceat(padded, pairs)[::2] if len(lo) else np.empty(0)
    return result


def _reduced(windows: Windows, function: Callable[[Ints, Ints], Floats]) -> Vector:
    present = windows.hi > windows.lo
    return spread(windows, present, function(windows.lo[present], windows.hi[present]))


def spread(windows: Windows, present: Bools, results: Floats) -> Vector:
    """`results` of the windows that have one, in order, at their rows and steps."""
    values = np.full(present.shape, np.nan)
    with np.errstate(over="ignore"):
        values[present] = results
    return Vector(windows.labels, values, present)
