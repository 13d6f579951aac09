"""Series that writers have had lately: what an external server keeps cannot be counted there for each of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controlplane.telemetry.store.columns import Bools, Ints
from controlplane.telemetry.store.writer import Owner
from wire.write_body import Key

# A series that had no sample for this long gives its room to another.
IDLE_SECONDS = 3600
# Of all writers together, in 120 MB: one of them may have as many.
REMEMBERED_MAX = 10_000_000


@dataclass
class _Series:
    """One writer's: hashes that ascend, and when each was seen last on the process' monotonic clock."""

    hashes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    seen_seconds: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def places(self, hashes: Ints) -> tuple[Ints, Bools]:
        """Where each hash stands or would stand, and whether it is there."""
        places: Ints = np.searchsorted(self.hashes, hashes)
        there = np.zeros(len(hashes), np.bool_)
        inside = places < len(self.hashes)
        there[inside] = self.hashes[places[inside]] == hashes[inside]
        return places, there

    def insert(self, places: Ints, hashes: Ints, now_seconds: int) -> None:
        self.hashes = np.insert(self.hashes, places, hashes)
        self.seen_seconds = np.insert(self.seen_seconds, places, now_seconds)

    def drop_idle(self, now_seconds: int) -> None:
        active = now_seconds - self.seen_seconds < IDLE_SECONDS
        self.hashes, self.seen_seconds = self.hashes[active], self.seen_seconds[active]


class ActiveSeries:
    """What one process has seen of each writer's series, for any of its threads: a hash and an age, 12 bytes each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._of: dict[Owner, _Series] = {}
        self._swept_seconds = int(clock())

    def note(self, owner: Owner, hashes: Ints) -> Bools:
        """Which of the series are active. Those are seen now."""
        now_seconds = int(self._clock())
        with self._lock:
            series = self._of.get(owner)
            if series is None:
                return np.zeros(len(hashes), np.bool_)
            places, there = series.places(hashes)
            there[there] = now_seconds - series.seen_seconds[places[there]] < IDLE_SECONDS
            series.seen_seconds[places[there]] = now_seconds
            return there

    def add(self, owner: Owner, hashes: Ints, series_max: int) -> int:
        """How many active series the owner has with these; of more than `series_max`, none of these is added.

        Where that makes too many of all writers, the other writers' are forgotten: they are then counted anew.
        """
        now_seconds = int(self._clock())
        fresh: Ints = np.unique(hashes)
        with self._lock:
            self._sweep(now_seconds)
            series = self._of.get(owner, _Series())
            series.drop_idle(now_seconds)
            places, there = series.places(fresh)
            count = len(series.hashes) + int(np.count_nonzero(~there))
            if count <= series_max:
                series.insert(places[~there], fresh[~there], now_seconds)
                self._of[owner] = series
                if sum(len(each.hashes) for each in self._of.values()) > REMEMBERED_MAX:
                    self._of = {owner: series}
            return count

    def _sweep(self, now_seconds: int) -> None:
        """Now and then: the memory of writers that are gone."""
        if now_seconds - self._swept_seconds >= IDLE_SECONDS:
            self._swept_seconds = now_seconds
            for series in self._of.values():
                series.drop_idle(now_seconds)
            self._of = {owner: series for owner, series in self._of.items() if len(series.hashes)}


def hashes_of(keys: Sequence[Key]) -> Ints:
    """Of each series. Python's hash has 64 bits and a key that no writer knows: none can make two series alike."""
    return np.fromiter(map(hash, keys), np.int64, len(keys))
