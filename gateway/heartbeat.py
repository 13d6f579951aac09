"""Comments in a stream that has nothing to say yet: proxies and clients give up a connection that is silent.

A comment is legal between any two events of a server-sent stream, and every client skips it (WHATWG HTML, 9.2.6).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

COMMENT = b": waiting\n\n"


class Heartbeat:
    """Awaits `beat` whenever a stream has been quiet for `every_seconds`; 0: never. One timer a stream.

    `quiet_since` is the owner's to set: when the last send ended (time.monotonic), None while one runs or where a
    comment would stand within an event. `beating` is the send of a comment that runs; wait for it before another one.
    """

    __slots__ = ("_beat", "_every_seconds", "_timer", "beating", "quiet_since")

    def __init__(self, every_seconds: float, quiet_since: float, beat: Callable[[], Awaitable[None]]) -> None:
        self._every_seconds, self._beat = every_seconds, beat
        self.quiet_since: float | None = quiet_since
        self.beating: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if every_seconds:
            self._look_in(quiet_since + every_seconds - time.monotonic())

    async def stop(self) -> None:
        """No further comment; returns when none is being sent."""
        self._stop_timer()
        if self.beating is not None:
            await self.beating

    def cut(self) -> None:
        """No further comment, and no end of one that a client does not take."""
        self._stop_timer()
        if self.beating is not None:
            self.beating.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._look)

    def _look(self) -> None:
        since = self.quiet_since
        left = self._every_seconds if since is None else since + self._every_seconds - time.monotonic()
        if left > 0:
            self._look_in(left)
            return
        self.beating = asyncio.ensure_future(self._send())
        self._look_in(self._every_seconds)

    async def _send(self) -> None:
        self.quiet_since = None
        try:
            await self._beat()
        finally:
            self.beating = None
        self.quiet_since = time.monotonic()
