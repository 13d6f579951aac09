"""How a node is, judged from what its agent last reported. Pure: rows and time in, a state and named reasons out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal, Protocol

from wire.canonical import Document

Health = Literal["ok", "cordoned", "degraded", "lost", "unknown"]

# By a GPU's reported state.
_GPU_REASONS = {"lost": "gpu_lost", "unresponsive": "gpu_unresponsive", "error": "gpu_error"}
# By an engine's condition: it does nothing because it was told so.
_IDLE_REASONS = {"paused": "engine_paused", "sleeping": "engine_sleeping"}


class NodeFacts(Protocol):
    """What is judged of a node: the row, or anything that has as much."""

    cordoned: bool
    cordon_reason: str
    gpu_source: str
    gpu_problems: list[str]
    host_problems: list[str]
    reported_at: datetime | None


class GpuFacts(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def state(self) -> str: ...


class EngineFacts(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def condition(self) -> str: ...
    @property
    def facts(self) -> Document: ...
    @property
    def cordoned(self) -> bool: ...


def node_health(
    node: NodeFacts,
    gpus: Iterable[GpuFacts],
    engines: Iterable[EngineFacts],
    now: datetime,
    lost_after_seconds: float,
) -> tuple[Health, list[str]]:
    """The state, and every reason as `name` or `name: what`, the gravest first.

    `unknown`: no agent has reported yet. `lost`: it has been silent for longer than `lost_after_seconds`, and what it
    reported before may no longer be so. `cordoned`: it takes no new work. `degraded`: it does, though something of it
    has failed. A cordon goes before a failure, which it contains; the reasons name both.
    """
    silence = _silence(node, now, lost_after_seconds)
    cordon = [_named("cordoned", node.cordon_reason)] if node.cordoned else []
    engines = list(engines)
    failures = _failures(node, gpus, engines)
    state: Health = "ok"
    if silence:
        state = "unknown" if node.reported_at is None else "lost"
    elif cordon:
        state = "cordoned"
    elif failures:
        state = "degraded"
    return state, silence + cordon + failures + _remarks(node, engines)


def _silence(node: NodeFacts, now: datetime, lost_after_seconds: float) -> list[str]:
    if node.reported_at is None:
        return ["never_reported"]
    silent = now - node.reported_at
    if silent <= timedelta(seconds=lost_after_seconds):
        return []
    return [_named("agent_silent", f"{int(silent.total_seconds())} s")]


def _failures(node: NodeFacts, gpus: Iterable[GpuFacts], engines: Iterable[EngineFacts]) -> list[str]:
    reasons = [
        _named(_GPU_REASONS.get(gpu.state, "gpu_error"), f"GPU {gpu.index}")
        for gpu in sorted(gpus, key=lambda gpu: gpu.index)
        if gpu.state != "ok"
    ]
    if node.gpu_source != "none":
        reasons += [_named("gpu_problem", problem) for problem in node.gpu_problems]
    for engine in engines:
        if engine.state == "down":
            reasons.append(_named("engine_down", _named(engine.name, engine.error)))
        elif engine.condition == "hung":
            reasons.append(_named("engine_hung", _named(engine.name, engine.error)))
        if failed := failed_probes(engine):
            reasons.append(_named("engine_probe_failed", _named(engine.name, ", ".join(failed))))
    return reasons


def failed_probes(engine: EngineFacts) -> list[str]:
    return sorted(name for name, outcome in engine.facts.get("probes", {}).items() if outcome == "failed")


def _remarks(node: NodeFacts, engines: Iterable[EngineFacts]) -> list[str]:
    """What is worth knowing and no failure: a machine that has no GPU lacks nothing."""
    no_gpu = [_named("no_gpu", problem) for problem in node.gpu_problems] if node.gpu_source == "none" else []
    idle = [
        _named(_IDLE_REASONS[engine.condition], engine.name)
        for engine in engines
        if engine.state == "up" and engine.condition in _IDLE_REASONS
    ]
    unseen = [_named("host_problem", problem) for problem in node.host_problems]
    return no_gpu + unseen + idle + [_named("engine_cordoned", engine.name) for engine in engines if engine.cordoned]


def _named(name: str, what: str) -> str:
    return f"{name}: {what}" if what else name
