"""Keeps the adapters loaded that a pool desires, after a restart of the engine or of the agent too."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpu_agent.acts.calls import engine_calls
from gpu_agent.acts.outcome import NotDone
from gpu_agent.acts.tools import EngineWork, Kept, Tools
from gpu_agent.adapters.plan import Plan, plan
from gpu_agent.engines.look import Look
from gpu_agent.policy import NodePolicy
from wire.acts import LoadLora, Request, UnloadLora
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE, EngineReport
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.adapters")
_LIMIT_BYTES = 1 << 20
_ADAPTERS_LIMIT = 64
_LIST_SECONDS = 10.0
# Somebody may unload one; and how long after a failure it is tried again, at first and at most.
_AGAIN_SECONDS, _BACKOFF_SECONDS, _BACKOFF_LIMIT_SECONDS = 30.0, 10.0, 600.0


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


@dataclass
class _Known:
    """Of one engine. `failures`: of those in a row. `desired`, `restarts`: as of the last try."""

    due_seconds: float = 0
    failures: int = 0
    desired: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    loaded: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class AdapterKeeper:
    """`tools` of the acts, which load and unload. `clock`: seconds, without jumps."""

    def __init__(
        self,
        file: Path,
        policy: NodePolicy,
        tools: Callable[[], Tools],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._policy, self._tools, self._clock = file, policy, tools, clock
        self._known: dict[str, _Known] = {}
        # Engine → adapter → folder: what was loaded by this.
        self._own = _read(file)

    def looked(self, name: str, engine: NodeEngine, look: Look) -> None:
        """Begin what a look makes due."""
        if engine.kind != "vllm" or not (engine.adapters or self._own.get(name)):
            self._drop(name)
            return
        known = self._known.setdefault(name, _Known())
        if look.report.state != "up" or look.report.condition in ("sleeping", "paused"):
            # A process that starts holds what its command line names.
            known.loaded, known.due_seconds = {}, 0
            return
        if known.restarts != look.restarts or known.desired != engine.adapters:
            known.due_seconds, known.failures = 0, 0
        if known.task is None and self._clock() >= known.due_seconds:
            known.desired, known.restarts = engine.adapters, look.restarts
            known.task = asyncio.create_task(self._keep(name, engine, known))

    def add_to(self, report: EngineReport) -> EngineReport:
        known = self._known.get(report.name)
        if known is None:
            return report
        loaded = dict(list(known.loaded.items())[:_ADAPTERS_LIMIT])
        return msgspec.structs.replace(report, adapters=loaded, adapter_problems=known.problems)

    def keep_only(self, names: Collection[str]) -> None:
        for gone in self._known.keys() - names:
            self._drop(gone)

    def stop(self) -> None:
        self.keep_only(())

    def _drop(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None and known.task is not None:
            known.task.cancel()

    async def _keep(self, name: str, engine: NodeEngine, known: _Known) -> None:
        work = EngineWork(name, engine, self._policy.engine(name), {}, _keeps_nothing, self._tools())
        try:
            known.loaded = await _loaded(work)
            todo = plan(engine.adapters, known.loaded, self._own.get(name, {}))
            known.problems = dict(todo.problems)
            if todo.load or todo.unload:
                await self._do(work, todo, known)
                known.loaded = await _loaded(work)
            self._forget(name, engine, known.loaded)
        except (NotDone, TimeoutError) as error:
            known.problems = dict.fromkeys(engine.adapters.keys() - known.loaded.keys(), str(error) or "no answer")
        except Exception:
            log.exception("the adapters of engine %s cannot be kept", name)
        known.failures = known.failures + 1 if known.problems else 0
        known.due_seconds = self._clock() + (_backoff(known.failures) if known.failures else _AGAIN_SECONDS)
        known.task = None

    async def _do(self, work: EngineWork, todo: Plan, known: _Known) -> None:
        for adapter in todo.unload:
            await self._try(work, adapter, "unload_lora", UnloadLora(adapter), known)
        for adapter, folder in todo.load.items():
            if adapter not in known.problems and await self._try(
                work, adapter, "load_lora", LoadLora(adapter, folder), known
            ):
                self._write(work.name, {**self._own.get(work.name, {}), adapter: folder})

    async def _try(self, work: EngineWork, adapter: str, action: str, request: Request, known: _Known) -> bool:
        """Whether it was done; why not is a problem of the adapter's, which keeps no other from being tried."""
        # Late, as for acts: few nodes have adapters.
        from gpu_agent.acts.doing import do_on_engine

        if action not in work.policy.allow:
            known.problems[adapter] = f"{action} is not allowed by this node's policy"
            return False
        try:
            log.info("engine %s: %s", work.name, await do_on_engine(request, work))
        except NotDone as error:
            known.problems[adapter] = f"{error.reason}: {error.detail}"
            return False
        return True

    def _forget(self, name: str, engine: NodeEngine, loaded: Mapping[str, str]) -> None:
        """What is neither loaded nor desired any more."""
        own = self._own.get(name, {})
        kept = {each: folder for each, folder in own.items() if each in loaded or each in engine.adapters}
        if kept != own:
            self._write(name, kept)

    def _write(self, name: str, own: dict[str, str]) -> None:
        self._own = {**self._own, name: own} if own else {each: self._own[each] for each in self._own if each != name}
        try:
            write_private(self._file, msgspec.json.encode(self._own))
        except OSError as error:
            # One that is not known to be of this agent's stays loaded, which harms nobody.
            log.warning("which adapters were loaded cannot be written down: %s", error.strerror)


async def _loaded(work: EngineWork) -> dict[str, str]:
    """Adapter → where it is from, as the engine says. Raises: NotDone, TimeoutError."""
    async with asyncio.timeout(_LIST_SECONDS), engine_calls(work) as calls:
        models = await calls.read("/v1/models", _Models)
    return {card.id: card.root or "" for card in models.data if card.parent is not None}


def _backoff(failures: int) -> float:
    return float(min(_BACKOFF_LIMIT_SECONDS, _BACKOFF_SECONDS * 2 ** min(failures - 1, 10)))


async def _keeps_nothing(kept: Kept) -> None:
    """What is loaded once more is loaded already."""


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(read_bounded(file, _LIMIT_BYTES), type=dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, *UNREADABLE) as error:
        log.warning("which adapters were loaded by this agent is not known; those stay loaded: %s", error)
        return {}
