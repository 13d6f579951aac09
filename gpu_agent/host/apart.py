"""Calls that may never return, such as one on a network disk whose server is away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswer(Exception):
    """The call, or one before it, has not come back."""


class Apart(Generic[T]):
    """Runs one call at a time in a thread that holds up neither the event loop nor the end of the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Set once the call that is under way has come back.
        self._back: asyncio.Event | None = None
        # Whoever waited for it was cancelled, which says nothing of the call.
        self._left = False

    async def run(self, call: Callable[[], T], deadline_seconds: float) -> T:
        """What the call returns or raises. Raises: NoAnswer, at once where an earlier one is still under way; one that
        was only left by who waited for it is waited for.
        """
        # Said alike, so that one trouble is told once.
        failure = f"no answer within {deadline_seconds:g} s"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_seconds):
                while self._back is not None:
                    if not self._left:
                        raise NoAnswer(failure)
                    await self._back.wait()
                self._back, self._left = asyncio.Event(), False
                answer: asyncio.Future[T] = loop.create_future()
                threading.Thread(target=self._work, args=(call, loop, answer), name=self._name, daemon=True).start()
                try:
                    return await answer
                except asyncio.CancelledError:
                    self._left = True
                    raise
        except TimeoutError:
            self._left = False
            raise NoAnswer(failure) from None

    def _work(self, call: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
        result: T | Exception
        try:
            result = call()
        except Exception as error:
            result = error
        # The loop may have ended: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._tell, answer, result)

    def _tell(self, answer: asyncio.Future[T], result: T | Exception) -> None:
        if self._back is not None:
            self._back.set()
            self._back = None
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)
