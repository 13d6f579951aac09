"""Looks at all engines of a node, each apart from the others: a hung one holds back none of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from gpu_agent.engines.look import Look, look_at
from gpu_agent.engines.pages import EnginePages
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.engines")


class EngineWatch:
    """`on_look(engine, look)` is called as soon as a look has ended, unless the engine is gone by then."""

    def __init__(self, pages: EnginePages, on_look: Callable[[NodeEngine, Look], None]) -> None:
        self._pages, self._on_look = pages, on_look
        self._running: dict[str, tuple[NodeEngine, asyncio.Task[None]]] = {}

    def look(self, engines: Mapping[str, NodeEngine]) -> None:
        """Begin a look at each engine that none is under way at, and end those at engines that are not among them."""
        for name, (engine, task) in list(self._running.items()):
            if engines.get(name) != engine:
                task.cancel()
                del self._running[name]
        for name in sorted(engines.keys() - self._running.keys()):
            engine = engines[name]
            self._running[name] = engine, asyncio.create_task(self._look(name, engine))

    async def stop(self) -> None:
        self.look({})
        await self._pages.close()

    async def _look(self, name: str, engine: NodeEngine) -> None:
        try:
            look = await look_at(self._pages, name, engine)
        except Exception as error:
            # Whatever an engine answers, the others are watched on.
            log.exception("the look at engine %s failed", name)
            report = EngineReport(name, "down", error=f"the agent failed to look: {type(error).__name__}")
            look = Look(report, time.time_ns() // 1_000_000)
        del self._running[name]
        self._on_look(engine, look)
