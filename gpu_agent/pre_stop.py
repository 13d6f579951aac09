"""Engines whose process somebody on this node is about to end: out of service first, and empty before it ends.

The report says which they are; the control plane then tells gateways, and this node, that they take no new work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from gpu_agent.engines.look import Look
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

LIMIT_SECONDS_MAX = 3600
# How long the control plane may take to take it out of service before it is drained all the same.
_ROUTING_SECONDS = 10.0
# Of an engine that nobody ended after all.
_BACK_AFTER_SECONDS = 60.0
_POLL_SECONDS = 0.2


class UnknownEngine(Exception):
    """This node has no engine of that name."""


@dataclass
class _Leaving:
    """`started_at_ms`: of the process that shall end; UNSET where that is not told."""

    started_at_ms: int | UnsetType
    until_seconds: float


class PreStop:
    """`engines`: as configured now. `seen`: the last look at each. `on_change`: there is something to report.

    `drain` waits until an engine has no request left, for so many seconds at most; it says why it has, or is empty.
    """

    def __init__(
        self,
        engines: Callable[[], Mapping[str, NodeEngine]],
        seen: Callable[[], Mapping[str, EngineReport]],
        drain: Callable[[str, int], Awaitable[str]],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engines, self._seen, self._drain, self._on_change, self._clock = engines, seen, drain, on_change, clock
        self._leaving: dict[str, _Leaving] = {}

    def mark(self, report: EngineReport) -> EngineReport:
        """The report of an engine, which says so while it is leaving."""
        return msgspec.structs.replace(report, leaving=True) if self.is_leaving(report.name) else report

    def is_leaving(self, name: str) -> bool:
        """Until another process answers there, or nobody has ended it for long."""
        leaving, seen = self._leaving.get(name), self._seen().get(name)
        if leaving is None:
            return False
        started_at_ms = UNSET if seen is None or seen.state != "up" else seen.started_at_ms
        if leaving.started_at_ms is UNSET:
            # Asked before the first look, as of an agent that starts again.
            leaving.started_at_ms = started_at_ms
        another = UNSET not in (started_at_ms, leaving.started_at_ms) and started_at_ms != leaving.started_at_ms
        if another or self._clock() >= leaving.until_seconds:
            del self._leaving[name]
            return False
        return True

    async def empty(self, name: str, limit_seconds: int) -> str:
        """Why it still has work when the time is over; empty: it has none. Raises: UnknownEngine."""
        if name not in self._engines():
            raise UnknownEngine(name)
        seen = self._seen().get(name)
        until_seconds = self._clock() + limit_seconds + _BACK_AFTER_SECONDS
        self._leaving[name] = _Leaving(UNSET if seen is None else seen.started_at_ms, until_seconds)
        self._on_change()
        if seen is not None and seen.state == "down":
            return ""
        begun_seconds = self._clock()
        patience_seconds = min(_ROUTING_SECONDS, limit_seconds)
        while not self._out_of_service(name) and self._clock() - begun_seconds < patience_seconds:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        return await self._drain(name, max(1, int(limit_seconds - (self._clock() - begun_seconds))))

    def _out_of_service(self, name: str) -> bool:
        engine = self._engines().get(name)
        return engine is None or engine.cordoned


async def drained(look: Callable[[], Awaitable[Look]], limit_seconds: int) -> str:
    """As the act `drain` judges it."""
    # Late, as for acts: few engines are stopped by a hook.
    from gpu_agent.acts.drain import until_empty
    from gpu_agent.acts.outcome import NotDone

    try:
        await until_empty(look, limit_seconds)
    except NotDone as error:
        return error.detail
    return ""
