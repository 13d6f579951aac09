"""How many requests a second a pool serves: measured only while some wait, since else what leaves is what came.

Counts and time are forgotten by halves (`HALF_LIFE_MS`), also while nobody waits, so that what was measured in an hour
that is over says nothing any more. Time is integer milliseconds, monotonic. Source: seed 1, section 8.
"""

from __future__ import annotations

import math

from policy.queue import MS_PER_SECOND

HALF_LIFE_MS = 30_000
# Fewer say nothing: the error of a count of n is √n, a third of nine.
_LEAST_SERVED = 9
# Two standard errors: of a hundred such estimates two lie below what is true.
_STANDARD_ERRORS = 2


class ServiceRate:
    """The rate of one queue. `served` each time that one leaves it to be served, `waiting` when it fills or empties."""

    def __init__(self, now_ms: int) -> None:
        self._served = self._busy_ms = 0.0
        self._at_ms = now_ms
        self._some_wait = False

    def waiting(self, some: bool, now_ms: int) -> None:
        """Whether any wait from now on."""
        if some != self._some_wait:
            self._pass_to(now_ms)
            self._some_wait = some

    def served(self, now_ms: int) -> None:
        """One that waited is served."""
        self._pass_to(now_ms)
        self._served += 1

    def per_second(self, now_ms: int) -> float | None:
        """None where too few were served lately to say."""
        return self._rate(now_ms, 0)

    def at_most_per_second(self, now_ms: int) -> float | None:
        """What the rate hardly exceeds: a refusal that rests on this one does not rest on a chance."""
        return self._rate(now_ms, _STANDARD_ERRORS)

    def _rate(self, now_ms: int, errors: float) -> float | None:
        self._pass_to(now_ms)
        if self._served < _LEAST_SERVED or self._busy_ms < 1:
            return None
        return (self._served + errors * math.sqrt(self._served)) * MS_PER_SECOND / self._busy_ms

    def _pass_to(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms <= 0:
            return
        kept = 0.5 ** (passed_ms / HALF_LIFE_MS)
        self._served *= kept
        self._busy_ms = self._busy_ms * kept + (passed_ms if self._some_wait else 0)
        self._at_ms = now_ms
