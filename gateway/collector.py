"""Collections of garbage that no stream notices.

Requests leave no rings behind (`Exchange.close`), so there is little to find; to look at all that is kept for thousands
of tenants takes 0.1 s, in which the event loop stands still.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sized

_TURN_SECONDS = 10.0
_ALL_SECONDS = 3600.0


def calm_collector() -> None:
    """Collections that come by themselves are of young objects in small numbers. What is imported is left out."""
    gc.freeze()
    gc.set_threshold(10_000, 5, 1_000_000)


class Collector:
    """`running`: the requests that are served. `now`: seconds of a clock that only goes on."""

    def __init__(self, running: Sized, now: Callable[[], float]) -> None:
        self._running, self._now = running, now
        self._all_due = now() + _ALL_SECONDS

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            self.turn()

    def turn(self) -> None:
        """Collect what is young, 60,000 objects at most, and once an hour everything, as soon as no request runs.

        What has lived until then is not looked at again before everything is: without rings it goes by itself.
        """
        if self._running or self._now() < self._all_due:
            gc.collect(1)
        else:
            gc.unfreeze()
            gc.collect()
            self._all_due = self._now() + _ALL_SECONDS
        gc.freeze()
