"""What many browsers ask for at the same moment, made once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from controlplane.configs.hub import hub

T = TypeVar("T")
# A target is lost by saying nothing, so what was read is not good for long even where nothing changed.
KEPT_SECONDS = 1.0


class Kept(Generic[T]):
    """Values by key, kept until something changes, KEPT_SECONDS at most or `seconds` where they are given.

    Thread-safe; one is made at a time.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._changes, self._since = -1, 0.0
        self._kept: dict[Hashable, T] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        if not hub.running:
            # Nothing here would tell of a change.
            return make()
        with self._lock:
            changes, now = hub.changes, time.monotonic()
            seconds = KEPT_SECONDS if self._seconds is None else self._seconds
            if changes != self._changes or now - self._since > seconds:
                self._changes, self._since, self._kept = changes, now, {}
            if key not in self._kept:
                self._kept[key] = make()
            return self._kept[key]
