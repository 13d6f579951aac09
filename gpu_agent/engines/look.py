"""What an agent sees of one engine: is it up, which version, what its metrics page says."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from gpu_agent.engines.names import NAMES
from gpu_agent.engines.numbers import Reading, capacity_tokens, readings
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from gpu_agent.engines.scan import NotMetrics, Scan
from wire.messages import UNREADABLE, EngineReport
from wire.snapshot import NodeEngine

_ERROR_CHARACTERS = 500
_VERSION_CHARACTERS = 200


@dataclass(frozen=True)
class _Paths:
    """Where an engine of one kind answers."""

    health: str = "/health"
    version: str | None = None
    metrics: str = "/metrics"


# Source: each engine's documentation; Triton speaks KServe v2. TensorRT-LLM's /metrics is JSON about iterations.
_PATHS = {
    "vllm": _Paths(version="/version"),
    "trtllm": _Paths(metrics="/prometheus/metrics"),
    "triton": _Paths(health="/v2/health/ready", version="/v2"),
    "tgi": _Paths(version="/info"),
    "ollama": _Paths(health="/api/version", version="/api/version"),
}


class _VersionPage(msgspec.Struct):
    version: str


@dataclass(frozen=True)
class Look:
    """One look at an engine. `numbers`: of its metrics page, read at `at_ms` (Unix time).

    `hung`: see EngineWatch; None where it cannot be told.
    """

    report: EngineReport
    at_ms: int
    numbers: list[Reading] = field(default_factory=list)
    hung: bool | None = None


async def look_at(pages: EnginePages, name: str, engine: NodeEngine) -> Look:
    """One look at an engine, under one deadline for all its pages.

    It is up if its health page answers 200; what else cannot be read is left out and said.
    """
    paths = _PATHS.get(engine.kind, _Paths())
    deadline = pages.deadline()
    try:
        await pages.check(engine.url + paths.health, deadline)
    except PageUnavailable as error:
        return Look(EngineReport(name, "down", error=_failure(paths.health, error)), _now_ms())
    (version, no_version), (numbers, at_ms, no_numbers) = await asyncio.gather(
        _version(pages, engine.url, paths.version, deadline), _numbers(pages, engine, paths.metrics, deadline)
    )
    capacity = capacity_tokens(numbers)
    said: str | UnsetType = "; ".join(filter(None, (no_version, no_numbers))) or UNSET
    report = EngineReport(
        name, "up", version=version, kv_capacity_tokens=UNSET if capacity is None else capacity, error=said
    )
    return Look(report, at_ms, numbers)


async def _version(pages: EnginePages, url: str, path: str | None, deadline: float) -> tuple[str | UnsetType, str]:
    """The version, or why it could not be read; neither where the engine has no page for it."""
    if path is None:
        return UNSET, ""
    try:
        page = msgspec.json.decode(await pages.read(url + path, deadline), type=_VersionPage)
    except (PageUnavailable, *UNREADABLE) as error:
        return UNSET, _failure(path, error)
    return _one_line(page.version)[:_VERSION_CHARACTERS], ""


async def _numbers(
    pages: EnginePages, engine: NodeEngine, path: str, deadline: float
) -> tuple[list[Reading], int, str]:
    """The numbers of the metrics page with their time, or why there are none; neither for a kind without names."""
    if engine.kind not in NAMES:
        return [], _now_ms(), ""
    try:
        async with pages.open(engine.url + path, deadline) as page:
            scan = Scan(engine.kind, page.media_type)
            async for chunk in page.chunks():
                scan.feed(chunk)
        return readings(engine.kind, scan.end()), _now_ms(), ""
    except (PageUnavailable, NotMetrics) as error:
        return [], _now_ms(), _failure(path, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _failure(path: str, error: Exception) -> str:
    return _one_line(f"{path}: {error}")[:_ERROR_CHARACTERS]


def _one_line(text: str) -> str:
    """What an engine says goes into the log, too."""
    return " ".join(text.split())
