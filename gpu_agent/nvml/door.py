"""Keeps NVML open while nothing wants it closed, and closed while something does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import NoReturn

from gpu_agent.nvml.release import Release, Releases

log = logging.getLogger("headworks.agent.nvml")
# How often it is looked whether a command on the node wants NVML closed: some 20 µs each time.
_POLL_SECONDS = 0.5


class NvmlDoor:
    """Runs `hold_open` as a task, anew where it fails, and cancels it for each release; then `closed` is awaited."""

    def __init__(
        self,
        releases: Releases,
        *,
        hold_open: Callable[[], Coroutine[None, None, None]],
        closed: Callable[[], Awaitable[None]],
    ) -> None:
        self._releases, self._hold_open, self._closed = releases, hold_open, closed
        self.release: Release | None = None
        self._settling = asyncio.Lock()
        self._holding: asyncio.Task[None] | None = None
        self._obeying: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        self._releases.prepare()
        self._obeying = asyncio.create_task(self._obey())

    async def stop(self) -> None:
        if self._obeying is not None:
            self._obeying.cancel()
            await asyncio.gather(self._obeying, return_exceptions=True)
            self._obeying = None
            await self._close()

    async def close(self, for_seconds: float) -> None:
        """For so long, or until `reopen`; release.MAX_SECONDS at most. Returns once that is done."""
        self._releases.begin(for_seconds)
        if self._obeying is not None:
            await self._settle()

    async def reopen(self) -> None:
        """End what `close` began; it opens in its own time, and a command's request stands."""
        self._releases.end()
        if self._obeying is not None:
            await self._settle()

    async def _obey(self) -> NoReturn:
        while True:
            try:
                await self._settle()
            except Exception:
                log.exception("whether NVML is wanted closed cannot be told; it is looked for again")
            await asyncio.sleep(_POLL_SECONDS)

    async def _settle(self) -> None:
        async with self._settling:
            before, self.release = self.release, self._releases.now()
            if self.release is None:
                if before is not None:
                    log.info("NVML is opened again")
                if self._holding is None or self._holding.done():
                    self._holding = asyncio.create_task(self._hold_open())
                    self._holding.add_done_callback(_say_failure)
            elif self.release != before:
                log.info("NVML is %s", self.release.says)
                await self._close()

    async def _close(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            await asyncio.gather(self._holding, return_exceptions=True)
            self._holding = None
        await self._closed()


def _say_failure(holding: asyncio.Task[None]) -> None:
    if not holding.cancelled() and (error := holding.exception()):
        log.error("reading NVML failed, and is begun anew", exc_info=error)
