"""Wherever a request stands, and however its client leaves: the engine is left, and nothing is held any more."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.fleet import (
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
)
from tests.gateway.leavers import LEAVERS, Leaver

# The benchmark says how soon in quiet (50 ms); tests share their cores.
SOON_SECONDS = 1.0
TOKENS = 1000
# Of each request at most: its prompt of 7, and one token that came.
USED_TOKENS = 8
ENVIRONMENT = {
    "HEADWORKS_GATEWAY_ENGINE_TOKENIZE_SECONDS": "10",
    "HEADWORKS_GATEWAY_CONNECT_TIMEOUT_SECONDS": "30",
    "HEADWORKS_GATEWAY_HEARTBEAT_SECONDS": "0.1",
}


@dataclass
class Scene:
    gateway: RunningGateway
    engine: ScriptedEngine
    second: ScriptedEngine

    async def ask(self, client: Leaver, *, complete: bool = True, **fields: Any) -> None:
        await client.ask(self.gateway.port, json.dumps(chat(max_tokens=300, **fields)).encode(), complete=complete)

    async def until(self, metric: str, value: float, **labels: str) -> None:
        name = f"headworks_gateway_{metric}"
        await self.gateway.until(lambda: self.gateway.metric(name, **labels), value, f"{name} to be {value:g}")

    async def until_it_arrives(self, engine: ScriptedEngine) -> None:
        await asyncio.wait_for(engine.arrived.wait(), 15)
        engine.arrived.clear()

    async def configure(self, **paths: Any) -> None:
        await self.gateway.publish(changed(self.gateway.control.content, **paths))
        answer = self.gateway.control.answer_to(self.gateway.control.revision)
        assert "error" not in (answer or {}), answer


async def count_seven(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"count": 7})


@pytest.fixture
async def scene(engine: ScriptedEngine, second_engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[Scene]:
    content = changed(
        configuration(engine.url),
        engines__e0__kv_capacity_tokens=1000,
        tenants__alpha={"tpm_limit": TOKENS, "max_parallel_requests": 1},
    )
    engine.tokenize = second_engine.tokenize = count_seven
    async with running_gateway(tmp_path, content, ENVIRONMENT) as gateway:
        yield Scene(gateway, engine, second_engine)


# Each brings a client's request to one place, and is at its end once the client has left.
Place = Callable[[Scene, Leaver], AsyncIterator[None]]


async def half_of_its_body_sent(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    await scene.ask(client, complete=False)
    await scene.until("requests_in_flight", 1)
    yield


async def measured_by_an_engine(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    asked = len(scene.engine.tokenize_bodies)
    scene.engine.tokenize = scene.engine.silence

    async def is_asked() -> bool:
        return len(scene.engine.tokenize_bodies) > asked

    # A prompt that was counted before is not asked about.
    await scene.ask(client, messages=[{"role": "user", "content": f"{time.monotonic_ns()}"}])
    await scene.gateway.until(is_asked, True, "the engine to be asked")
    yield
    scene.engine.tokenize = count_seven


async def in_the_queue(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    await scene.configure(pools__main={"model": MODEL, "max_concurrency": 1, "queue_ttl_ms": 60_000})
    scene.engine.behave = scene.engine.one_token_then_silence
    async with scene.gateway.post(chat(stream=True), "beta") as occupant:
        await occupant.content.readany()
        await scene.ask(client, stream=True)
        await scene.until("queue_length", 1, pool="main")
        yield
        await scene.until("queue_length", 0, pool="main")
        scene.engine.release.set()
        assert "[DONE]" in await occupant.text()
    scene.engine.release.clear()


async def connecting_to_its_engine(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    with deaf_port() as port:
        await scene.configure(engines__e0__url=f"http://127.0.0.1:{port}", engines__e0__kind="tgi")
        await scene.ask(client, stream=True)
        await scene.until("engine_requests", 1, engine="e0")
        yield


async def before_the_first_token(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    scene.engine.behave = scene.engine.silence
    await scene.ask(client, stream=True)
    await scene.until_it_arrives(scene.engine)
    yield


async def within_a_stream(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    scene.engine.behave = scene.engine.one_token_then_silence
    await scene.ask(client, stream=True)
    await scene.until_it_arrives(scene.engine)
    yield


async def while_a_whole_answer_is_made(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    scene.engine.behave = scene.engine.silence
    await scene.ask(client)
    await scene.until_it_arrives(scene.engine)
    yield


async def tried_again_on_another_engine(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    await scene.configure(
        pools__spare={"model": MODEL},
        engines__e1={**scene.gateway.control.content["engines"]["e0"], "url": scene.second.url, "pool": "spare"},
        routes__all={"order": 10, "pools": {"main": 1000}, "fallbacks": {"spare": {"order": 1}}},
    )
    scene.engine.behave, scene.second.behave = scene.engine.failing(500), scene.second.silence
    await scene.ask(client, stream=True)
    await scene.until_it_arrives(scene.second)
    yield


async def while_a_small_model_is_asked(scene: Scene, client: Leaver) -> AsyncIterator[None]:
    cascade = {"pool": "small", "escalate_on": {"empty": True}}
    await scene.configure(
        models__tiny=scene.gateway.control.content["models"][MODEL],
        pools__small={"model": "tiny"},
        engines__e1={**scene.gateway.control.content["engines"]["e0"], "url": scene.second.url, "pool": "small"},
        routes__all={"order": 10, "pools": {"main": 1000}, "cascade": cascade},
    )
    scene.second.behave = scene.second.silence
    await scene.ask(client, stream=True)
    await scene.until_it_arrives(scene.second)
    assert not scene.engine.bodies
    yield


@pytest.mark.parametrize(
    "place",
    [
        half_of_its_body_sent,
        measured_by_an_engine,
        in_the_queue,
        connecting_to_its_engine,
        before_the_first_token,
        within_a_stream,
        while_a_whole_answer_is_made,
        tried_again_on_another_engine,
        while_a_small_model_is_asked,
    ],
)
async def test_a_client_that_leaves_holds_nothing(scene: Scene, place: Place):
    occupied = place is in_the_queue
    for number, leaver in enumerate(LEAVERS, start=1):
        # The tenant may run one request: a place that was not given back refuses the next one.
        client = leaver()
        async with asynccontextmanager(place)(scene, client):
            left_at = time.monotonic()
            await client.leave()
            await scene.until("requests_total", number, outcome="cancelled", reason="client_left")
            if not occupied:
                await nothing_is_held(scene, left_at)
        await nothing_is_held(scene, None)
        assert await scene.gateway.remaining_tokens() >= TOKENS - number * USED_TOKENS
        await client.close()
    assert await scene.gateway.metric("headworks_gateway_requests_total", tenant="alpha") == len(LEAVERS)


async def nothing_is_held(scene: Scene, left_at: float | None) -> None:
    """`left_at`: the engine was left soon after."""
    for engine in (scene.engine, scene.second):
        await scene.gateway.until_left(engine)
        if left_at is not None and engine.closed_at and engine.closed_at[-1] > left_at:
            assert engine.closed_at[-1] - left_at < SOON_SECONDS
    for metric in ("requests_in_flight", "kv_reserved_tokens", "engine_requests", "pool_requests", "queue_tokens"):
        await scene.until(metric, 0)


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose connections nobody accepts: once its queue is full, a further one waits to be connected."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address[1]
