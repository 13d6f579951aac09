"""A gateway with cache policies, an engine that ends its answers as real ones do, and one that gives embeddings."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from aiohttp import web

from tests.gateway.fleet import DONE, RunningGateway, ScriptedEngine, changed, delta, event, shared_configuration, usage

EMBEDDER = "acme/embed"
# The tests' machine may be busy; what is slow is told by a test of its own.
PATIENT = {
    "HEADWORKS_GATEWAY_CACHE_EMBEDDING_TIMEOUT_SECONDS": "5",
    "HEADWORKS_GATEWAY_CACHE_EMBEDDING_PAUSE_SECONDS": "0",
}
_numbers = itertools.count(1)


def answered(text: str, finish_reason: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return {"id": "a", "object": "chat.completion", "choices": [choice], "usage": usage(7, 2)}


def streamed(text: str, finish_reason: str = "stop") -> list[bytes]:
    last = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
    words = [event(delta(f"{word} ")) for word in text.split()]
    return [*words, event(last), event({"choices": [], "usage": usage(7, 2)}), DONE]


class AnsweringEngine(ScriptedEngine):
    """Every answer is another one, so that one that is given again is told from one that is made anew.

    `finish_reason` of all answers; embeddings are those of `vectors`, by text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.behave = self.number
        self.finish_reason = "stop"
        self.bodies.clear()
        self.vectors: dict[str, list[float]] = {}
        self.release = asyncio.Event()

    async def number(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        text = f"answer number {next(_numbers)}"
        if body.get("stream"):
            return await self.stream(request, *streamed(text, self.finish_reason))
        return web.json_response(answered(text, self.finish_reason))

    async def embed(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"data": [{"index": 0, "embedding": self.vectors[body["input"]]}]})

    @property
    def asked(self) -> int:
        return len(self.bodies)


def with_policy(engine_url: str, embedder_url: str | None = None, **policy: Any) -> dict[str, Any]:
    """Both tenants have the policy `faq`. With an embedding engine it is semantic, too."""
    content = shared_configuration(engine_url, pools=("main",) if embedder_url is None else ("main", "embed"))
    policy.setdefault("exact", {})
    if embedder_url is not None:
        policy.setdefault("semantic", {"embedding_model": EMBEDDER})
        limits = {"max_context_tokens": 500, "default_max_tokens": 1, "max_tokens": 1}
        embedder = {"url": embedder_url, "kind": "vllm", "pool": "embed", "served_model": "served-embed"}
        content = changed(
            content,
            models={**content["models"], EMBEDDER: limits},
            pools={**content["pools"], "embed": {"model": EMBEDDER, "work": "embedding"}},
            engines={**content["engines"], "embedder": embedder},
        )
    tenants = {name: {"cache_policy": "faq"} for name in ("alpha", "beta")}
    return changed(content, tenants={**content["tenants"], **tenants}, cache_policies={"faq": policy})


async def cache_of(gateway: RunningGateway, body: dict[str, Any], **options: Any) -> tuple[bytes, str]:
    """The answer as it came, and what the gateway says of its caches."""
    async with gateway.post(body, **options) as answer:
        data = await answer.read()
        assert answer.status == 200, data
        return data, answer.headers.get("x-headworks-cache", "")


def text_of(answer: bytes) -> str:
    return str(json.loads(answer)["choices"][0]["message"]["content"])


async def feedback(
    gateway: RunningGateway, request_id: str, verdict: str, tenant: str = "alpha", **more: Any
) -> tuple[int, Any]:
    body = {"request_id": request_id, "verdict": verdict, **more}
    status, document, _ = await gateway.call(body, tenant, path="/v1/feedback")
    return status, document
