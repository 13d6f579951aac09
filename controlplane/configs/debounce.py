"""When a burst of writes becomes one revision. Pure: time is passed in."""

from __future__ import annotations


class Debounce:
    """Due once nothing has come for `quiet_seconds`, and `max_wait_seconds` after the first at the latest."""

    def __init__(self, quiet_seconds: float, max_wait_seconds: float) -> None:
        self._quiet_seconds, self._max_wait_seconds = quiet_seconds, max_wait_seconds
        self._first: float | None = None
        self._last = 0.0

    def saw(self, now: float) -> None:
        """A write came at `now` (seconds of a monotonic clock)."""
        if self._first is None:
            self._first = now
        self._last = now

    def wait_seconds(self, now: float) -> float | None:
        """Seconds until due, 0 if due now; None where nothing waits."""
        if self._first is None:
            return None
        due = min(self._last + self._quiet_seconds, self._first + self._max_wait_seconds)
        return max(0.0, due - now)

    def clear(self) -> None:
        """What waited was published."""
        self._first = None
