"""Looks at all engines of a node, each apart from the others: a hung one holds back none of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from gpu_agent.engines.hang import Standstill, can_tell, standstill
from gpu_agent.engines.look import Look, look_at
from gpu_agent.engines.pages import EnginePages
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.engines")


class EngineWatch:
    """`on_look(engine, look)` is called as soon as a look has ended, unless the engine is gone by then.

    An engine is hung whose work stands still for `hung_seconds` while requests run. `clock`: seconds, without jumps.
    """

    def __init__(
        self,
        pages: EnginePages,
        on_look: Callable[[NodeEngine, Look], None],
        *,
        hung_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages, self._on_look = pages, on_look
        self._hung_seconds, self._clock = hung_seconds, clock
        self._running: dict[str, tuple[NodeEngine, asyncio.Task[None]]] = {}
        # With the engine that it is of: another one may have the name by now.
        self._still: dict[str, tuple[NodeEngine, Standstill]] = {}

    def look(self, engines: Mapping[str, NodeEngine]) -> None:
        """Begin a look at each engine that none is under way at, and end those at engines that are not among them."""
        for name, (engine, task) in list(self._running.items()):
            if engines.get(name) != engine:
                task.cancel()
                del self._running[name]
        self._still = {name: still for name, still in self._still.items() if engines.get(name) == still[0]}
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
        self._on_look(engine, self._judged(name, engine, look))

    def _judged(self, name: str, engine: NodeEngine, look: Look) -> Look:
        """The look, and whether it shows a hang. One without numbers is no sign of life; being down is no hang."""
        if look.report.state != "up":
            self._still.pop(name, None)
            return look
        if not can_tell(look.numbers):
            return look
        _, before = self._still.pop(name, (engine, None))
        now_seconds = self._clock()
        still = standstill(before, look.numbers, now_seconds, look.at_ms)
        if still is None:
            return replace(look, hung=False)
        self._still[name] = engine, still
        if still.lasted_seconds(now_seconds) < self._hung_seconds:
            return replace(look, hung=False)
        error = "; ".join(filter(None, (_hang(still), look.report.error or "")))
        return replace(look, hung=True, report=msgspec.structs.replace(look.report, error=error))


def _hang(still: Standstill) -> str:
    """The same at every look of one hang, or each would be a change that is reported."""
    since = datetime.fromtimestamp(still.since_ms / 1000, UTC)
    return f"hung: requests running {still.running_requests}, nothing moved since {since:%Y-%m-%d %H:%M:%S} UTC"
