"""Goodput of the healthy traffic: the part of what was sent in a time that was answered well, once that has ended.

How much is sent in a time is partly luck, and the traffic the same, so that the part says what the fleet made of it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from bench.support.lab.clients import Clients, good_part
from bench.support.lab.healthy import JUDGED

# Requests that were sent so long ago have ended, but for few.
ENDED_SECONDS = 12.0
# Of a measurement so much is made anew before each pathology, at least.
_FRESH_SHARE = 1 / 3
# Nobody's client waits longer for a first token.
BACKLOG_SECONDS = 30.0


@dataclass
class Goodput:
    """Times are those of time.monotonic(). `measure_seconds`: of each measurement; 0: none is made.

    What comes before a pathology is of all times in which nothing was wrong, the latest ones: a drill alone has too
    little of it, and the traffic is the same.
    """

    clients: Clients
    measure_seconds: float
    _well: list[tuple[float, float]] = field(default_factory=list)
    _well_since: float | None = None

    def well(self) -> None:
        """From now on nothing is wrong."""
        self._well_since = time.monotonic()

    def wrong(self) -> None:
        """Something is wrong from now on: it hits what was sent shortly before as well."""
        if self._well_since is not None:
            self._well.append((self._well_since, max(self._well_since, time.monotonic() - ENDED_SECONDS)))
            self._well_since = None

    @property
    def lacking_seconds(self) -> float:
        """How much longer all must be well, until there is enough to measure."""
        if not self.measure_seconds:
            return 0.0
        known = sum(until - since for since, until in self._well)
        now = 0.0 if self._well_since is None else time.monotonic() - self._well_since
        return max(0.0, max(_FRESH_SHARE * self.measure_seconds, self.measure_seconds - known) + ENDED_SECONDS - now)

    def before(self) -> float:
        """Of the last times that were well, as long as one measurement."""
        left, ended = self.measure_seconds, Counter[str]()
        for since, until in reversed(self._well):
            begin = max(since, until - left)
            ended += self.clients.endings(begin, until, JUDGED)
            left -= until - begin
            if left <= 0:
                break
        return good_part(ended)

    def since(self, moment: float) -> float:
        """Of one measurement from then on; it must be over for ENDED_SECONDS."""
        if not self.measure_seconds:
            return 0.0
        return self.clients.goodput(moment, moment + self.measure_seconds, JUDGED)

    def lately(self, seconds: float) -> float:
        """Of what was sent last and has ended; never of more than one measurement."""
        until, long = time.monotonic() - ENDED_SECONDS, min(seconds, self.measure_seconds)
        return self.clients.goodput(until - long, until, JUDGED) if long > 0 else 0.0
