"""No answer, header or error tells a client where an engine stands, whatever the engine says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
Make = Callable[[ScriptedEngine], Behaviour]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    """Of an engine that fails all day, and one that is away; neither breaker opens."""
    content = configuration(engine.url, "http://127.0.0.1:9")
    pool = {"model": MODEL, "breaker": {"minimum_requests": 10_000}}
    content = changed(
        content,
        pools={"main": pool, "away": {**pool, "model": "away"}},
        models__away=content["models"][MODEL],
        engines__e1__pool="away",
        routes__away={"order": 1, "match": {"models": {"away": True}}, "pools": {"away": 1000}},
    )
    async with running_gateway(tmp_path_factory.mktemp("gateway"), content) as gateway:
        yield gateway


def telling(engine: ScriptedEngine) -> dict[str, str]:
    """Headers by which servers give themselves away."""
    address = engine.url.removeprefix("http://")
    return {
        "Server": f"uvicorn {address}", "Via": f"1.1 {address}", "X-Served-By": address, "Location": f"{engine.url}/v2",
        "Set-Cookie": f"engine={address}", "X-Upstream": engine.url, "Content-Location": engine.url, "Alt-Svc": address,
    }  # fmt: skip


def whole(status: int, document: dict[str, Any] | None = None) -> Make:
    def make(engine: ScriptedEngine) -> Behaviour:
        async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            said = document or {"error": {"message": f"see {engine.url}/docs, or {engine.url.upper()}", "code": status}}
            return web.json_response(said, status=status, headers=telling(engine))

        return answer

    return make


def stream_that_fails(code: int, events: int) -> Make:
    def make(engine: ScriptedEngine) -> Behaviour:
        async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={**telling(engine), "Content-Type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(events):
                await response.write(event(delta("a")))
            message = f"worker at {engine.url} died"
            await response.write(event({"error": {"message": message, "code": code}}))
            return response

        return answer

    return make


def rubbish(engine: ScriptedEngine) -> Behaviour:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(text=f"<html>{engine.url}</html>", headers=telling(engine))

    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        whole(200, {"choices": []}),
        whole(200),
        whole(302),
        whole(400),
        whole(404),
        whole(500),
        whole(503),
        stream_that_fails(400, 0),
        stream_that_fails(500, 0),
        stream_that_fails(400, 1),
        stream_that_fails(500, 1),
        rubbish,
        lambda engine: engine.cut,
        lambda engine: engine.one_token_then_cut,
    ],
)
async def test_it_is_told_nowhere(gateway: RunningGateway, engine: ScriptedEngine, make: Make, stream: bool):
    engine.behave = make(engine)
    engine.bodies.clear()
    async with gateway.post(chat(stream=stream)) as answer:
        told = repr(answer.raw_headers) + await answer.text()
    assert engine.bodies, "it was asked"
    assert engine.url.rpartition(":")[2] not in told
    assert "127.0.0.1" not in told
    assert "uvicorn" not in told


async def test_it_is_not_told_of_an_engine_that_is_away(gateway: RunningGateway):
    async with gateway.post({**chat(), "model": "away"}) as answer:
        told = repr(answer.raw_headers) + await answer.text()
    assert answer.status == 503
    assert ":9" not in told.partition("{")[2]
    assert "127.0.0.1" not in told
