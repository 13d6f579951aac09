"""Looks at all engines of a node, each apart from the others: a hung one holds back none of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from gpu_agent.engines.course import Course
from gpu_agent.engines.look import Look, Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.pausing import KINDS as PAUSING_KINDS
from gpu_agent.engines.pausing import NeverSaid, is_paused
from gpu_agent.engines.probes import Probes
from gpu_agent.engines.tell import Told
from gpu_agent.rounds import stood_still
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.engines")


@dataclass
class _Watched:
    """`says_paused`: this run of the engine does, as far as is known."""

    engine: NodeEngine
    course: Course
    task: asyncio.Task[None] | None = None
    says_paused: bool = True


class EngineWatch:
    """`on_look(engine, look)` is called as soon as a look has ended, unless the engine is gone by then.

    Then `tell(name, what)` is, for each event that the look asks for. `hung_seconds`: see Course. `clock`: seconds,
    without jumps.
    """

    def __init__(
        self,
        pages: EnginePages,
        on_look: Callable[[NodeEngine, Look], None],
        tell: Callable[[str, Told], None],
        probes: Probes,
        *,
        hung_seconds: float,
        wanted: Wanted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages, self._on_look, self._tell, self._probes = pages, on_look, tell, probes
        self._hung_seconds, self._wanted, self._clock = hung_seconds, wanted, clock
        self._watched: dict[str, _Watched] = {}

    def look(self, engines: Mapping[str, NodeEngine]) -> None:
        """Begin a look at each engine that none is under way at, and end those at engines that are not among them."""
        for name, watched in list(self._watched.items()):
            if not same_engine(engines.get(name), watched.engine):
                self._drop(name)
        for name in sorted(engines):
            watched = self._watched.setdefault(name, _Watched(engines[name], Course(self._hung_seconds)))
            watched.engine = engines[name]
            if watched.task is None:
                watched.task = asyncio.create_task(self._look(name, watched))

    def expect_restart(self, name: str, within_seconds: float) -> None:
        """Somebody asked for the next restart of this engine, if it comes within this time."""
        if watched := self._watched.get(name):
            watched.course.expect_restart(self._clock() + within_seconds)

    async def stop(self) -> None:
        self.look({})
        self._probes.close()
        await self._pages.close()

    def _drop(self, name: str) -> None:
        watched = self._watched.pop(name)
        if watched.task is not None:
            watched.task.cancel()
        self._probes.drop(name)

    async def _look(self, name: str, watched: _Watched) -> None:
        paused: bool | None = None
        deadline = self._pages.deadline()
        try:
            look, paused = await self._one_look(name, watched)
            if stood_still(deadline, asyncio.get_running_loop().time()):
                # Answers that had come were given up when this process ran again.
                look, paused = await self._one_look(name, watched)
        except Exception as error:
            # Whatever an engine answers, the others are watched on.
            log.exception("the look at engine %s failed", name)
            said = f"the agent failed to look: {type(error).__name__}"
            look = Look(EngineReport(name, "down", error=said, condition="unreachable"), time.time_ns() // 1_000_000)
        watched.task = None
        self._ended(name, watched, look, paused)

    async def _one_look(self, name: str, watched: _Watched) -> tuple[Look, bool | None]:
        # Together, so that a hung core, which owes the second answer, has the look end at its deadline.
        return await asyncio.gather(look_at(self._pages, name, watched.engine, self._wanted), self._is_paused(watched))

    async def _is_paused(self, watched: _Watched) -> bool | None:
        if watched.engine.kind not in PAUSING_KINDS:
            return None
        if watched.says_paused:
            try:
                return await is_paused(self._pages, watched.engine.url, self._pages.deadline())
            except NeverSaid:
                watched.says_paused = False
        # Who cannot say so cannot be paused.
        return False

    def _ended(self, name: str, watched: _Watched, look: Look, paused: bool | None) -> None:
        engine, restarts = watched.engine, watched.course.restarts
        look, told = watched.course.follow(engine, look, paused, self._clock())
        restarted = look.restarts > restarts
        serves = look.report.condition in ("ok", "hung")
        if restarted or look.report.state != "up":
            watched.says_paused = True
        if restarted or not serves:
            self._probes.forget(name)
        if serves:
            self._probes.begin(name, engine)
        outcomes = self._probes.outcomes(name)
        probes = {probe: outcome.state for probe, outcome in outcomes.items()}
        report = msgspec.structs.replace(look.report, probes=probes)
        self._on_look(engine, replace(look, report=report, probes=outcomes))
        for one in told:
            self._tell(name, one)


def same_engine(one: NodeEngine | None, other: NodeEngine | None) -> bool:
    """Whether what is known of one holds for the other: who is cordoned, or shall be otherwise, is still the same."""
    if one is None or other is None:
        return one is other
    desired = {"cordoned": other.cordoned, "arguments": other.arguments, "adapters": other.adapters}
    return msgspec.structs.replace(one, **desired) == other
