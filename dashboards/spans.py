"""How far back the charts look, and in which steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controlplane.telemetry.settings_rows import RECORDING_DELAY_SECONDS

# What is measured now has been written by then, for the most part; the rest comes with the next reading of the whole.
SETTLE_MS = 2_000
# Once their delay is over, all recording rules of a moment have been evaluated by then.
_EVALUATION_MS = 30_000


@dataclass(frozen=True)
class Span:
    """`seconds` back from now, a point every `step_seconds`; rates and gauges look at `window_seconds` a point.

    A gauge that nobody wrote for a window is a gap. Where `is_recorded`, charts read recorded series: raw ones would be
    millions of samples.
    """

    name: str
    seconds: int
    step_seconds: int
    window_seconds: int
    is_recorded: bool = False

    @property
    def settle_ms(self) -> int:
        """How long after a moment its samples are there."""
        return RECORDING_DELAY_SECONDS.read() * 1000 + _EVALUATION_MS if self.is_recorded else SETTLE_MS

    @property
    def step_ms(self) -> int:
        return self.step_seconds * 1000

    @property
    def points(self) -> int:
        return self.seconds // self.step_seconds + 1

    def newest_ms(self, now_ms: int) -> int:
        """The last moment that has a point by now. All viewers share these moments, and so the queries."""
        return (now_ms - self.settle_ms) // self.step_ms * self.step_ms

    def next_at_ms(self, now_ms: int) -> int:
        """When there will be another point."""
        return self.newest_ms(now_ms) + self.step_ms + self.settle_ms

    def first_ms(self, newest_ms: int) -> int:
        return newest_ms - (self.points - 1) * self.step_ms


# A window holds at least two samples of an agent or gateway that pushes every 15 s, with one of them late; and twice a
# step, so that a point between two gaps has a neighbour to be drawn to.
_ALL = (
    Span("15m", 900, 5, 60),
    Span("1h", 3_600, 15, 60),
    Span("6h", 21_600, 90, 180),
    Span("24h", 86_400, 300, 600, is_recorded=True),
    Span("7d", 604_800, 1_800, 3_600, is_recorded=True),
)
SPANS = {span.name: span for span in _ALL}
FIRST_SPAN = SPANS["15m"]
# What no span reaches has about as many points as the longest of them.
_POINTS = _ALL[-1].points
LONGEST_SECONDS = 90 * 86_400


def span_of(seconds: float) -> Span:
    """For a time between two moments: the steps of the shortest span that is as long, in whole steps."""
    like = next((span for span in _ALL if span.seconds >= seconds), _ALL[-1])
    whole = min(max(math.ceil(seconds), like.step_seconds), LONGEST_SECONDS)
    step_seconds = max(like.step_seconds, math.ceil(whole / _POINTS / like.step_seconds) * like.step_seconds)
    window_seconds = max(like.window_seconds, 2 * step_seconds)
    steps = math.ceil(whole / step_seconds)
    return Span("", steps * step_seconds, step_seconds, window_seconds, like.is_recorded)
