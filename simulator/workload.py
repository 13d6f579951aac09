"""Requests as they were measured: arrivals whose minutes differ, and lengths drawn from counts by bucket."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from wire.sketches import lowest_of
from wire.what_if import Arrivals

MINUTE_SECONDS = 60.0


class MeasuredLengths:
    """Lengths from counts by bucket: each bucket as often as it was counted, evenly within it; at least 1 token."""

    def __init__(self, counts: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(counts)
        self._buckets = [bucket for bucket, _ in ordered]
        self._passed = list(accumulate(count for _, count in ordered))

    def draw(self, rng: random.Random) -> int:
        bucket = self._buckets[bisect_right(self._passed, rng.randrange(self._passed[-1]))]
        return max(1, rng.randrange(lowest_of(bucket), lowest_of(bucket + 1)))


def arrival_times(arrivals: Arrivals, load: float, rng: random.Random) -> Iterator[float]:
    """When requests come, in seconds, without end.

    Each minute has the rate of a measured one that is drawn for it; within it gaps are gamma distributed. A gap is
    drawn in units of the mean and used up at the rate of the minutes that it passes.
    """
    mean_of_minutes = sum(arrivals.minutes) / len(arrivals.minutes) if arrivals.minutes else 1.0
    shares = [count / mean_of_minutes for count in arrivals.minutes] or [1.0]
    mean_rate = arrivals.mean_per_second * load
    shape = arrivals.burstiness
    now, ends, rate = 0.0, MINUTE_SECONDS, mean_rate * rng.choice(shares)
    while True:
        left = rng.gammavariate(shape, 1 / shape)
        while left > (ends - now) * rate:
            left -= (ends - now) * rate
            now, ends, rate = ends, ends + MINUTE_SECONDS, mean_rate * rng.choice(shares)
        # No less is left than nothing, where a minute has no arrivals.
        now += left / rate if rate else 0.0
        yield now
