"""Notices that an engine says nothing any more within a stream: one timer a stream, not one a chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

# A gateway that stood still itself (its machine was paused) finds its time over before what has come meanwhile.
_SECOND_LOOK_SECONDS = 0.1


class SilenceWatch:
    """Calls `give_up` once, when a wait for the engine lasts longer than `limit_seconds`; 0: never.

    Nothing is waited for until the first `wait`, nor between `heard` and the next one: neither a long prefill nor a
    client that takes nothing is the engine's silence.
    """

    def __init__(self, limit_seconds: float, give_up: Callable[[], None]) -> None:
        self.limit_seconds = limit_seconds
        self.gave_up = False
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waits_since: float | None = None
        self._doubted: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def wait(self) -> None:
        self._waits_since = self._loop.time()
        if self._timer is None and self.limit_seconds:
            self._look_in(self.limit_seconds)

    def heard(self) -> None:
        self._waits_since = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        since = self._waits_since
        left = self.limit_seconds if since is None else since + self.limit_seconds - self._loop.time()
        if left > 0:
            self._look_in(left)
        elif self._doubted != since:
            self._doubted = since
            self._look_in(_SECOND_LOOK_SECONDS)
        else:
            self.gave_up = True
            self._give_up()
