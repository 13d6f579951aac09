"""What one query may cost: samples touched, and time."""

from __future__ import annotations

import time
from collections.abc import Callable

from controlplane.telemetry.promql.errors import TimedOut, TooMuch


class Budget:
    """Counted down while a query runs; also bounds its memory, as everything large is counted before it is made."""

    def __init__(self, samples: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._samples, self._left, self._seconds = samples, samples, seconds
        self._clock, self._deadline = clock, clock() + seconds

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
