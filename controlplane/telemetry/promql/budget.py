"""What one query may cost: samples touched, and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from controlplane.telemetry.promql.errors import TimedOut, TooMuch

# A sample takes some 60 bytes while it is worked on.
LARGE_SAMPLES = 1_000_000


class Budget:
    """Counted down while a query runs; also bounds its memory, as everything large is counted before it is made.

    `alone`: what a query of more than LARGE_SAMPLES holds from then on until `close`, so that of those who share it one
    runs at a time.
    """

    def __init__(
        self,
        samples: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        alone: threading.Lock | None = None,
    ) -> None:
        self._samples, self._left, self._seconds = samples, samples, seconds
        self._clock, self._deadline = clock, clock() + seconds
        self._alone, self._is_alone = alone, False

    def touch(self, samples: int) -> None:
        """Raises TooMuch, TimedOut."""
        self._left -= samples
        if self._left < 0:
            raise TooMuch(
                f"query processing would touch more than {self._samples} samples; choose fewer series, a shorter range "
                "or a longer step"
            )
        if self._clock() > self._deadline:
            raise TimedOut(f"query timed out in expression evaluation after {self._seconds:g} s")
        if self._alone and not self._is_alone and self._samples - self._left > LARGE_SAMPLES:
            self._is_alone = self._alone.acquire(timeout=max(self._deadline - self._clock(), 0))
            if not self._is_alone:
                raise TimedOut(f"query timed out in query queue after {self._seconds:g} s: another large query runs")

    def close(self) -> None:
        if self._alone and self._is_alone:
            self._alone.release()
            self._is_alone = False
