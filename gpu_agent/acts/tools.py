"""What the doing of an act may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpu_agent.acts.outcome import failed
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Look
from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.model_files.keeper import ModelFiles
from gpu_agent.policy import EnginePolicy, NodePolicy
from wire.snapshot import NodeEngine

T = TypeVar("T")
Kept = Mapping[str, str | int]


class Gpus(Protocol):
    """Whoever has NVML open."""

    async def release(self, for_seconds: float) -> None: ...

    async def take_up(self) -> None: ...


@dataclass(frozen=True)
class Tools:
    """The parts of the agent that acts use.

    `look` looks at an engine once. `expect_restart` says that an engine is about to be restarted within so many
    seconds because that was asked for. `act_seconds`: how long an act may take that has no limit of its own.
    """

    look: Callable[[str, NodeEngine], Awaitable[Look]]
    expect_restart: Callable[[str, float], None]
    gpus: Gpus
    keys: EngineKeys
    files: ModelFiles
    act_seconds: float
    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    _disks: dict[str, Apart[Any]] = field(default_factory=dict)

    async def on_disk(self, engine: str, call: Callable[[], T]) -> T:
        """What a call on files of one engine gives, which may stand on a disk that hangs. Raises: NotDone, OSError."""
        apart: Apart[T] = self._disks.setdefault(engine, Apart("acts"))
        try:
            return await apart.run(call, self.act_seconds)
        except NoAnswer as error:
            raise failed("timeout", f"a file of the node's policy cannot be reached: {error}") from error


@dataclass(frozen=True)
class EngineWork:
    """One act on one engine. `keep` writes to disk what `kept` is after a restart of the agent; raises NotDone."""

    name: str
    engine: NodeEngine
    policy: EnginePolicy
    kept: Kept
    keep: Callable[[Kept], Awaitable[None]]
    tools: Tools

    async def look(self) -> Look:
        return await self.tools.look(self.name, self.engine)


@dataclass(frozen=True)
class NodeWork:
    """One act on the node itself. `keep` as of EngineWork; `tell_progress` gets a share in per mille."""

    policy: NodePolicy
    kept: Kept
    keep: Callable[[Kept], Awaitable[None]]
    tell_progress: Callable[[int], None]
    tools: Tools


def number(look: Look, name: str) -> float | None:
    """One number of the engine's metrics, under its canonical name; None where they do not say."""
    return next((reading.value for reading in look.numbers if reading.name == name), None)
