"""Engines on ports that the agent was told to try, and that no configuration names: which kind each is of."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

import msgspec

from gpu_agent.engines.look import version_in, version_path
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from wire.messages import UNREADABLE, FoundEngine
from wire.snapshot import EngineKind

log = logging.getLogger("headworks.agent.engines")
_MODELS_LIMIT = 32
_CHARACTERS = 200
# What each kind says in the list of its models. TGI says its model's name there.
# Source: each engine's OpenAI-compatible server.
_OWNERS: dict[str, EngineKind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "tensorrt_llm": "trtllm",
    "library": "ollama",
    "Triton Inference Server": "triton",
}
# How the names of its metrics begin, for one that shows its models to none without a key.
_METRICS: dict[bytes, EngineKind] = {b"vllm:": "vllm", b"sglang:": "sglang", b"llamacpp:": "llamacpp", b"tgi_": "tgi"}
_FIRST_NAME = re.compile(rb"^(" + b"|".join(_METRICS) + rb")", re.MULTILINE)
# The agent's own page and the merged one have metrics of engines, too.
_PASSED_ON = re.compile(rb"^headworks_", re.MULTILINE)


class _Model(msgspec.Struct):
    id: str
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model]


class _Server(msgspec.Struct):
    name: str


class _TgiInfo(msgspec.Struct):
    model_id: str
    max_concurrent_requests: int


class Discovery:
    """Tries ports of this machine's own address. What answers there and is no engine is none, and not named."""

    def __init__(self, pages: EnginePages, ports: Collection[int]) -> None:
        self._pages, self._ports = pages, sorted(ports)
        self._found: list[FoundEngine] = []

    async def look(self, configured: Iterable[str]) -> bool:
        """Try the ports that no configured engine has, given as URLs. Whether anything else is there than before."""
        taken = _ports_of(configured)
        tried = (self._try(f"http://127.0.0.1:{port}") for port in self._ports if port not in taken)
        before, self._found = self._found, [found for found in await asyncio.gather(*tried) if found is not None]
        return self._found != before

    def found(self, configured: Iterable[str]) -> list[FoundEngine]:
        """What the last look found, but for what has been configured since."""
        taken = _ports_of(configured)
        return [engine for engine in self._found if _ports_of([engine.url]).isdisjoint(taken)]

    async def _try(self, url: str) -> FoundEngine | None:
        try:
            return await self._find(url)
        except Exception:
            # Whatever answers there, the other ports are tried and the agent goes on.
            log.exception("the search for an engine at %s failed", url)
            return None

    async def _find(self, url: str) -> FoundEngine | None:
        # One deadline for all pages of a port: most answer the first, or nobody listens.
        deadline = self._pages.deadline()
        found = await self._by_models(url, deadline) or await self._by_other_pages(url, deadline)
        path = version_path(found.kind) if found else None
        if found is None or path is None:
            return found
        try:
            return msgspec.structs.replace(found, version=version_in(await self._pages.document(url + path, deadline)))
        except (PageUnavailable, *UNREADABLE):
            return found

    async def _by_models(self, url: str, deadline: float) -> FoundEngine | None:
        try:
            models = msgspec.json.decode(await self._pages.document(f"{url}/v1/models", deadline), type=_Models).data
        except (PageUnavailable, *UNREADABLE):
            return None
        kind = next((_OWNERS[model.owned_by] for model in models if model.owned_by in _OWNERS), None)
        return None if kind is None else _found(url, kind, (model.id for model in models))

    async def _by_other_pages(self, url: str, deadline: float) -> FoundEngine | None:
        try:
            if msgspec.json.decode(await self._pages.document(f"{url}/v2", deadline), type=_Server).name == "triton":
                return _found(url, "triton")
        except PageUnavailable as error:
            if error.reach != "answered":
                return None
        except UNREADABLE:
            pass
        try:
            info = msgspec.json.decode(await self._pages.document(f"{url}/info", deadline), type=_TgiInfo)
            return _found(url, "tgi", [info.model_id])
        except (PageUnavailable, *UNREADABLE):
            pass
        try:
            page = await self._pages.read(f"{url}/metrics", deadline)
        except PageUnavailable:
            return None
        name = _FIRST_NAME.search(page)
        return _found(url, _METRICS[name[1]]) if name and not _PASSED_ON.search(page) else None


def _ports_of(urls: Iterable[str]) -> set[int | None]:
    return {urlsplit(url).port for url in urls}


def _found(url: str, kind: EngineKind, models: Iterable[str] = ()) -> FoundEngine:
    names = [" ".join(name.split())[:_CHARACTERS] for name in models]
    return FoundEngine(url, kind, models=names[:_MODELS_LIMIT])
