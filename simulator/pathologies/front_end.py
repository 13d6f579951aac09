"""The API process in front of an engine's core: tokens become text, JSON and bytes on sockets one after another."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

# So long the event loop does nothing else: what a thread may keep Python's lock.
_SLICE_SECONDS = 0.005


class FrontEnd:
    """Hands on what leaves the engine. While it is bound, each token takes CPU time that this process really uses.

    `servers`: API processes that share the work. One is simulated, which has its part of it.
    """

    def __init__(self, servers: int = 1) -> None:
        self._servers = servers
        self._loop = asyncio.get_running_loop()
        self._token_seconds = 0.0
        self._work: deque[Callable[[], None]] = deque()
        # CPU time that the first in the queue has had so far.
        self._spent_seconds = 0.0
        self._busy = False

    @property
    def waiting(self) -> int:
        return len(self._work)

    def bind(self, token_seconds: float) -> None:
        """From now on each token costs so much; 0: nothing, and what waits leaves at once."""
        self._token_seconds = token_seconds / self._servers
        if not self._token_seconds:
            while self._work:
                self._work.popleft()()

    def hand_on(self, work: Callable[[], None]) -> None:
        """Do one token's work now, or after all that came before it."""
        if not self._token_seconds:
            work()
            return
        self._work.append(work)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        begun = before = time.thread_time()
        while self._work and before - begun < _SLICE_SECONDS:
            now = time.thread_time()
            self._spent_seconds += now - before
            before = now
            if self._spent_seconds >= self._token_seconds:
                self._spent_seconds = 0.0
                self._work.popleft()()
        self._busy = bool(self._work)
        if self._busy:
            self._loop.call_soon(self._go_on)
