"""Targets that come and go: how often one turned lately, and whether that is flapping.

A turn is a stream that opens, and a refusal after it applied, or the other way round. Kept are the times of the last
few of each target (epoch ms, oldest first).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from controlplane.core.fields import epoch_ms

WINDOW = timedelta(minutes=10)
# A change that is refused and then mended is two turns, a web process or a gateway that is restarted another: more
# than both within the window is no day's work.
FLAPPING_TURNS = 5
_KEPT = 20


def noted(turned_at_ms: Sequence[int], now: datetime) -> list[int]:
    """The times with one more turn, at `now`."""
    return [*turned_at_ms, epoch_ms(now)][-_KEPT:]


def turns(turned_at_ms: Sequence[int], now: datetime) -> int:
    """How many are within the window, on either side of `now`: clocks of web processes differ, and are set back."""
    window_ms = WINDOW // timedelta(milliseconds=1)
    return sum(abs(epoch_ms(now) - at_ms) <= window_ms for at_ms in turned_at_ms)


def is_flapping(turns: int) -> bool:
    return turns >= FLAPPING_TURNS
