"""Tries probes on a node's engines, each in its own interval, one at a time on each engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from gpu_agent import settings
from gpu_agent.engines.canary import CANARY
from gpu_agent.engines.conformance import JSON_SCHEMA
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.probe import Outcome, Probe, Undecided, ask
from gpu_agent.engines.tell import Told, told_of_failed_probe, told_of_held_probe
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.engines")
# One failure may be a request that was lost; it is tried again at the next look.
_FAILURES_TO_TELL = 2


@dataclass
class _Tried:
    """What is known of one engine's probes, by their names. `told`: those told as failed, and not yet as holding."""

    due_seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Everything but what was told: it is to be ended by an event."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        self.due_seconds.clear()
        self.failures.clear()
        self.outcomes.clear()


@dataclass(frozen=True)
class ProbeOptions:
    """Seconds between two tries, 0 for none, and how long an answer is waited for."""

    canary_seconds: float
    conformance_seconds: float
    timeout_seconds: float

    @classmethod
    def from_settings(cls) -> Self:
        return cls(
            canary_seconds=settings.CANARY_SECONDS.read(),
            conformance_seconds=settings.CONFORMANCE_SECONDS.read(),
            timeout_seconds=settings.CANARY_TIMEOUT_SECONDS.read(),
        )


class Probes:
    """`keys`: of the engines. `tell(engine name, what)` is called as soon as it is known.

    A probe that fails twice in a row is told once. The end is told once none fails any more. `clock`: seconds, without
    jumps.
    """

    def __init__(
        self,
        pages: EnginePages,
        tell: Callable[[str, Told], None],
        keys: EngineKeys,
        options: ProbeOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages, self._tell, self._keys, self._clock = pages, tell, keys, clock
        wanted = {CANARY: options.canary_seconds, JSON_SCHEMA: options.conformance_seconds}
        self._interval_seconds = {probe: seconds for probe, seconds in wanted.items() if seconds}
        self._timeout_seconds = options.timeout_seconds
        self._tried: dict[str, _Tried] = {}

    def begin(self, name: str, engine: NodeEngine) -> None:
        """Try the probe that is due for the longest, unless one is under way. For an engine that serves."""
        tried = self._tried.setdefault(name, _Tried())
        due = min(self._interval_seconds, key=lambda probe: tried.due_seconds.get(probe.name, 0), default=None)
        now_seconds = self._clock()
        if not self.is_trying(name) and due is not None and tried.due_seconds.get(due.name, 0) <= now_seconds:
            tried.due_seconds[due.name] = now_seconds + self._interval_seconds[due]
            tried.task = asyncio.create_task(self._try(name, engine, due, tried))

    def is_trying(self, name: str) -> bool:
        return name in self._tried and self._tried[name].task is not None

    def outcomes(self, name: str) -> dict[str, Outcome]:
        """What they last showed, by probe."""
        return dict(self._tried[name].outcomes) if name in self._tried else {}

    def forget(self, name: str) -> None:
        """It does not serve now, or another process answers: what was shown says nothing of that."""
        if tried := self._tried.get(name):
            tried.forget()

    def drop(self, name: str) -> None:
        """The engine is gone, or another has its name."""
        self.forget(name)
        self._tried.pop(name, None)

    def close(self) -> None:
        """End what is under way."""
        for name in list(self._tried):
            self.drop(name)

    async def _try(self, name: str, engine: NodeEngine, probe: Probe, tried: _Tried) -> None:
        model = engine.served_model or engine.model
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            read_key = partial(self._keys.read, name, engine.url)
            outcome = await ask(self._pages, engine.url, model, probe, deadline, read_key)
        except Undecided as error:
            log.debug("probe %s of engine %s shows nothing: %s", probe.name, name, error)
            tried.outcomes.pop(probe.name, None)
        except Exception:
            # Whatever an engine answers, the others are asked on.
            log.exception("probe %s of engine %s failed by itself", probe.name, name)
            tried.outcomes.pop(probe.name, None)
        else:
            self._take(name, engine, probe, tried, outcome)
        tried.task = None

    def _take(self, name: str, engine: NodeEngine, probe: Probe, tried: _Tried, outcome: Outcome) -> None:
        tried.outcomes[probe.name] = outcome
        if not outcome.failure:
            tried.failures.pop(probe.name, None)
            if probe.name in tried.told:
                tried.told.remove(probe.name)
                if not tried.told:
                    self._tell(name, told_of_held_probe(name, engine, probe.name))
            return
        failures = tried.failures.get(probe.name, 0) + 1
        tried.failures[probe.name] = failures
        if failures < _FAILURES_TO_TELL:
            tried.due_seconds[probe.name] = 0
        elif probe.name not in tried.told:
            tried.told.add(probe.name)
            self._tell(name, told_of_failed_probe(name, engine, probe.name, outcome.failure))
