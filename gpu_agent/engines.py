"""What an agent sees of one engine: is it up, which version, how much KV cache."""

from __future__ import annotations

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
    """One look at an engine. It is up if its health page answers 200; what else cannot be read is left out and said."""
    paths = _PATHS.get(engine.kind, _Paths())
    try:
        await pages.check(engine.url + paths.health)
    except PageUnavailable as error:
        return EngineReport(name, "down", error=_failure(paths.health, error))
    version: str | UnsetType = UNSET
    capacity: int | UnsetType = UNSET
    failures = []
    if paths.version is not None:
        try:
            page = msgspec.json.decode(await pages.read(engine.url + paths.version), type=_VersionPage)
            version = page.version[:_VERSION_CHARACTERS]
        except (PageUnavailable, *UNREADABLE) as error:
            failures.append(_failure(paths.version, error))
    if paths.kv_info is not None:
        try:
            page_lines = pages.lines(f"{engine.url}/metrics")
            tokens = kv_capacity_tokens([line async for line in page_lines if is_sample_of(line, paths.kv_info)])
            capacity = UNSET if tokens is None else tokens
        except PageUnavailable as error:
            failures.append(_failure("/metrics", error))
    said: str | UnsetType = "; ".join(failures) or UNSET
    return EngineReport(name, "up", version=version, kv_capacity_tokens=capacity, error=said)


def _failure(path: str, error: Exception) -> str:
    return f"{path}: {error}"[:_ERROR_CHARACTERS]
