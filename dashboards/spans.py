"""How far back the charts look, and in which steps."""

from __future__ import annotations

from dataclasses import dataclass

# What is measured now has been written by then, for the most part; the rest comes with the next reading of the whole.
SETTLE_MS = 2_000


@dataclass(frozen=True)
class Span:
    """`seconds` back from now, a point every `step_seconds`; rates and gauges look at `window_seconds` a point.

    A gauge that nobody wrote for a window is a gap.
    """

    name: str
    seconds: int
    step_seconds: int
    window_seconds: int

    @property
    def step_ms(self) -> int:
        return self.step_seconds * 1000

    @property
    def points(self) -> int:
        return self.seconds // self.step_seconds + 1

    def newest_ms(self, now_ms: int) -> int:
        """The last moment that has a point by now. All viewers share these moments, and so the queries."""
        return (now_ms - SETTLE_MS) // self.step_ms * self.step_ms

    def next_at_ms(self, now_ms: int) -> int:
        """When there will be another point."""
        return self.newest_ms(now_ms) + self.step_ms + SETTLE_MS

    def first_ms(self, newest_ms: int) -> int:
        return newest_ms - (self.points - 1) * self.step_ms


# A window holds at least two samples of an agent or gateway that pushes every 15 s, with one of them late.
SPANS = {span.name: span for span in (Span("15m", 900, 5, 60), Span("1h", 3_600, 15, 60), Span("6h", 21_600, 90, 180))}
FIRST_SPAN = SPANS["15m"]
