"""One thread for work that takes long. Owners have it in turn: none waits for all that another one has sent."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThread:
    """Of one owner the work is done in the order in which it came. A piece that has begun is not cut short."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._is_taken = False
        # Whose turn is next stands first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, owner: str, work: Callable[..., T], *arguments: Any) -> T:
        if self._is_taken:
            await self._turn(owner)
        self._is_taken = True
        running = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        running.add_done_callback(lambda _: self._pass_on())
        return await running

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, owner: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It came at the very moment in which its client left.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            owner, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
