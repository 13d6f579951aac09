"""Values that many viewers want at the same moment, made once for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """The newest `kept` values by key. Thread-safe; who asks for one that is being made waits for it.

    A value that could not be made is not kept: whoever waited sees the error, the next one tries anew.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._values: dict[Hashable, Future[T]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        value, is_mine = self._claim(key)
        if is_mine:
            self._make(key, value, make)
        return value.result()

    async def aget(self, key: Hashable, make: Callable[[], T]) -> T:
        """As `get`, which runs `make` in a thread; the event loop goes on meanwhile."""
        value, is_mine = self._claim(key)
        if is_mine:
            making = asyncio.get_running_loop().run_in_executor(None, self._make, key, value, make)
            # A viewer that leaves must not take the value away from the others.
            await asyncio.shield(making)
        return await asyncio.wrap_future(value)

    def forget(self, key: Hashable) -> None:
        """The next one who asks has the value made anew."""
        with self._lock:
            self._values.pop(key, None)

    def _claim(self, key: Hashable) -> tuple[Future[T], bool]:
        with self._lock:
            if key in self._values:
                return self._values[key], False
            while len(self._values) >= self._kept:
                del self._values[next(iter(self._values))]
            value = self._values[key] = Future()
            # From here on a waiter that is cancelled leaves it alone.
            value.set_running_or_notify_cancel()
            return value, True

    def _make(self, key: Hashable, value: Future[T], make: Callable[[], T]) -> None:
        try:
            value.set_result(make())
        except Exception as error:
            with self._lock:
                if self._values.get(key) is value:
                    del self._values[key]
            value.set_exception(error)
