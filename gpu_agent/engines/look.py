"""What an agent sees of one engine: is it up, which version, what its metrics page says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from gpu_agent.engines.own_series import OwnSeries, own_names, own_series
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from gpu_agent.engines.probe import Outcome
from gpu_agent.engines.status import STATUS_PAGES, Asked
from gpu_agent.policy import NodePolicy
from wire.engine_pages.names import METRICS_PATHS, NAMES
from wire.engine_pages.numbers import Reading, by_rank, capacity_tokens, readings
from wire.engine_pages.scan import NotMetrics, Scan
from wire.engine_pages.served_model import of_served_model
from wire.messages import UNREADABLE, Condition, EngineReport
from wire.snapshot import NodeEngine

_ERROR_CHARACTERS = 500
_VERSION_CHARACTERS = 200


@dataclass(frozen=True)
class _Paths:
    """Where an engine of one kind answers."""

    health: str = "/health"
    version: str | None = None


# Source: each engine's documentation; Triton speaks KServe v2.
_PATHS = {
    "vllm": _Paths(version="/version"),
    "trtllm": _Paths(version="/version"),
    "triton": _Paths(health="/v2/health/ready", version="/v2"),
    "tgi": _Paths(version="/info"),
    "ollama": _Paths(health="/api/version", version="/api/version"),
}

# A page that a server was not started with, or a version does not know, is none that cannot be read.
_NOT_SERVED = frozenset({403, 404, 405, 501})

_Body = bytes | PageUnavailable


class _VersionPage(msgspec.Struct):
    version: str


@dataclass(frozen=True)
class Wanted:
    """What to read beyond the canonical signals, and where. `own_series`: see `own_names`.

    `command_line(engine)`: the words of its listening process, None where they are not known.
    """

    policy: NodePolicy = field(default_factory=NodePolicy)
    own_series: tuple[str, ...] | None = None
    command_line: Callable[[str], Sequence[str] | None] = lambda _: None


@dataclass(frozen=True)
class _Metrics:
    """What a metrics page gave. `failure`: why there is nothing, or nothing of the engine's own."""

    at_ms: int
    numbers: list[Reading] = field(default_factory=list)
    ranks: dict[str, list[Reading]] = field(default_factory=dict)
    own: list[OwnSeries] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Look:
    """One look at an engine. `numbers`: of its metrics page, read at `at_ms` (Unix time).

    `ranks`: of a page of several data-parallel ranks, the numbers of each. `own`: the engine's own series.
    `refused`: nobody listened there. The rest is for EngineWatch to add. `hung`: None where it cannot be told.
    `restarts`: seen so far. `probes`: what they last showed.
    """

    report: EngineReport
    at_ms: int
    numbers: list[Reading] = field(default_factory=list)
    ranks: dict[str, list[Reading]] = field(default_factory=dict)
    own: list[OwnSeries] = field(default_factory=list)
    refused: bool = False
    hung: bool | None = None
    restarts: int = 0
    probes: dict[str, Outcome] = field(default_factory=dict)


async def look_at(pages: EnginePages, name: str, engine: NodeEngine, wanted: Wanted = Wanted()) -> Look:
    """One look at an engine, under one deadline for all its pages.

    It is up if its health page answers 200; what else cannot be read is left out and said.
    """
    paths = _PATHS.get(engine.kind, _Paths())
    deadline = pages.deadline()
    try:
        await pages.check(engine.url + paths.health, deadline)
    except PageUnavailable as error:
        condition: Condition = "unreachable" if error.reach == "unreachable" else "dead"
        report = EngineReport(name, "down", error=_failure(paths.health, error), condition=condition)
        return Look(report, _now_ms(), refused=error.reach == "refused")
    status_path, _ = STATUS_PAGES.get(engine.kind, (None, None))
    metrics, bodies = await asyncio.gather(
        _metrics(pages, name, engine, wanted, deadline),
        _bodies(pages, engine.url, [path for path in {paths.version, status_path} if path], deadline),
    )
    version, no_version = _version(paths.version, bodies)
    status, no_status = _status(engine, wanted.command_line(name), bodies)
    # What a page of metrics says is newer.
    said = {reading.name for reading in metrics.numbers}
    numbers = metrics.numbers + [reading for reading in status if reading.name not in said]
    capacity = capacity_tokens(numbers)
    report = EngineReport(
        name,
        "up",
        version=version,
        kv_capacity_tokens=UNSET if capacity is None else capacity,
        error="; ".join(filter(None, (no_version, metrics.failure, no_status))) or UNSET,
    )
    return Look(report, metrics.at_ms, numbers, metrics.ranks, metrics.own)


async def _bodies(pages: EnginePages, url: str, paths: Iterable[str], deadline: float) -> dict[str, _Body]:
    """The pages of JSON by path, each read once; of one that could not be read, why."""

    async def body(path: str) -> _Body:
        try:
            return await pages.document(url + path, deadline)
        except PageUnavailable as error:
            return error

    wanted = list(paths)
    return dict(zip(wanted, await asyncio.gather(*map(body, wanted)), strict=True))


def _version(path: str | None, bodies: Mapping[str, _Body]) -> tuple[str | UnsetType, str]:
    """The version, or why it could not be read; neither where the engine has no page for it."""
    if path is None:
        return UNSET, ""
    try:
        return version_in(_whole(bodies[path])), ""
    except (PageUnavailable, *UNREADABLE) as error:
        return UNSET, _unless_not_served(path, error)


def version_path(kind: str) -> str | None:
    """Where an engine of this kind says its version alone; None: nowhere."""
    return _PATHS.get(kind, _Paths()).version


def version_in(page: bytes) -> str:
    """Raises: one of UNREADABLE."""
    return _one_line(msgspec.json.decode(page, type=_VersionPage).version)[:_VERSION_CHARACTERS]


def _status(engine: NodeEngine, words: Sequence[str] | None, bodies: Mapping[str, _Body]) -> tuple[list[Reading], str]:
    """What a kind says on a page of JSON, or why it could not be read."""
    if engine.kind not in STATUS_PAGES:
        return [], ""
    path, read = STATUS_PAGES[engine.kind]
    try:
        return read(_whole(bodies[path]), Asked(engine.served_model, words)), ""
    except (PageUnavailable, *UNREADABLE) as error:
        return [], _unless_not_served(path, error)


def _unless_not_served(path: str, error: Exception) -> str:
    return "" if getattr(error, "status", 0) in _NOT_SERVED else _failure(path, error)


def _whole(body: _Body) -> bytes:
    if isinstance(body, PageUnavailable):
        raise body
    return body


async def _metrics(pages: EnginePages, name: str, engine: NodeEngine, wanted: Wanted, deadline: float) -> _Metrics:
    """What the metrics page says; nothing for a kind without names."""
    if engine.kind not in NAMES:
        return _Metrics(_now_ms())
    path = METRICS_PATHS[engine.kind]
    elsewhere = wanted.policy.engine(name).metrics_url
    try:
        async with pages.open(elsewhere or engine.url + path, deadline) as page:
            scan = Scan(engine.kind, page.media_type, own_names(engine.kind, wanted.own_series))
            async for chunk in page.chunks():
                scan.feed(chunk)
        return _read(engine, scan, elsewhere or path)
    except (PageUnavailable, NotMetrics) as error:
        failure = _failure(elsewhere or path, error)
        if engine.kind == "triton" and not elsewhere and getattr(error, "status", 0) in _NOT_SERVED:
            failure += "; name Triton's metrics page as metrics_url in this node's policy"
        return _Metrics(_now_ms(), failure=failure)


def _read(engine: NodeEngine, scan: Scan, path: str) -> _Metrics:
    """Raises: NotMetrics."""
    lines = of_served_model(scan.end(), engine.served_model)
    failure = ""
    try:
        own = own_series(of_served_model(scan.own_lines, engine.served_model))
    except NotMetrics as error:
        own, failure = [], _failure(path, error)
    return _Metrics(_now_ms(), readings(engine.kind, lines), by_rank(engine.kind, lines), own, failure)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _failure(path: str, error: Exception) -> str:
    return _one_line(f"{path}: {error}")[:_ERROR_CHARACTERS]


def _one_line(text: str) -> str:
    """What an engine says goes into the log, too."""
    return " ".join(text.split())
