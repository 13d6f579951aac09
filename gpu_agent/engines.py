"""What an agent sees of one engine: is it up, which version, how much KV cache."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from gpu_agent.exposition import is_sample_of, kv_capacity_tokens
from gpu_agent.pages import EnginePages, PageUnavailable
from wire.messages import UNREADABLE, EngineReport
from wire.snapshot import NodeEngine

_ERROR_CHARACTERS = 500
_VERSION_CHARACTERS = 200


@dataclass(frozen=True)
class _Paths:
    """Where an engine of one kind answers. `kv_info`: the info metric that carries kv_cache_size_tokens."""

    health: str = "/health"
    version: str | None = None
    kv_info: bytes | None = None


# Source: each engine's documentation; Triton speaks KServe v2. What a kind does not offer is not asked for.
_PATHS = {
    "vllm": _Paths(version="/version", kv_info=b"vllm:cache_config_info"),
    "triton": _Paths(health="/v2/health/ready", version="/v2"),
    "tgi": _Paths(version="/info"),
    "ollama": _Paths(health="/api/version", version="/api/version"),
}


class _VersionPage(msgspec.Struct):
    version: str


async def look_at(pages: EnginePages, name: str, engine: NodeEngine) -> EngineReport:
    """One look at an engine, under one deadline for all its pages.

    It is up if its health page answers 200; what else cannot be read is left out and said.
    """
    paths = _PATHS.get(engine.kind, _Paths())
    deadline = pages.deadline()
    try:
        await pages.check(engine.url + paths.health, deadline)
    except PageUnavailable as error:
        return EngineReport(name, "down", error=_failure(paths.health, error))
    (version, no_version), (capacity, no_capacity) = await asyncio.gather(
        _version(pages, engine.url, paths.version, deadline), _kv_capacity(pages, engine.url, paths.kv_info, deadline)
    )
    said: str | UnsetType = "; ".join(filter(None, (no_version, no_capacity))) or UNSET
    return EngineReport(name, "up", version=version, kv_capacity_tokens=capacity, error=said)


async def _version(pages: EnginePages, url: str, path: str | None, deadline: float) -> tuple[str | UnsetType, str]:
    """The version, or why it could not be read."""
    if path is None:
        return UNSET, ""
    try:
        page = msgspec.json.decode(await pages.read(url + path, deadline), type=_VersionPage)
    except (PageUnavailable, *UNREADABLE) as error:
        return UNSET, _failure(path, error)
    return page.version[:_VERSION_CHARACTERS], ""


async def _kv_capacity(
    pages: EnginePages, url: str, metric: bytes | None, deadline: float
) -> tuple[int | UnsetType, str]:
    """The KV cache in tokens, or why it could not be read; neither where the engine does not say."""
    if metric is None:
        return UNSET, ""
    try:
        page_lines = pages.lines(f"{url}/metrics", deadline)
        tokens = kv_capacity_tokens([line async for line in page_lines if is_sample_of(line, metric)])
    except PageUnavailable as error:
        return UNSET, _failure("/metrics", error)
    return (UNSET if tokens is None else tokens), ""


def _failure(path: str, error: Exception) -> str:
    return f"{path}: {error}"[:_ERROR_CHARACTERS]
