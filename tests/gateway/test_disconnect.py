"""A client that leaves frees its place at the engine and its reservations, wherever the request stands."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.fleet import (
    KEYS,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("disconnect"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url))
    return shared


# How soon is the benchmark's to say (50 ms); tests share their cores.


async def limited(gateway: RunningGateway) -> None:
    engines = {"e0": {**gateway.control.content["engines"]["e0"], "kv_capacity_tokens": 1000}}
    limits = {"tpm_limit": 600, "max_parallel_requests": 1}
    await gateway.publish(changed(gateway.control.content, tenants__alpha=limits, engines=engines))


async def freed(gateway: RunningGateway, engine: ScriptedEngine, used: int) -> None:
    await gateway.until_left(engine)

    async def reserved() -> float:
        return await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0")

    await gateway.until(reserved, 0, "the KV reservation to end")
    # 10 tokens a second come back, so the part that was used can only be seen from above.
    assert 600 - used <= await gateway.remaining_tokens() <= 600
    assert await gateway.grown("headworks_gateway_requests_total", outcome="cancelled", reason="client_left") == 1
    engine.behave = engine.answer
    assert (await gateway.call(chat()))[0] == 200, "the one parallel place is free again"


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_while_the_engine_is_silent(gateway: RunningGateway, engine: ScriptedEngine, stream: bool):
    await limited(gateway)
    engine.behave = engine.silence
    request = asyncio.ensure_future(gateway.call_status(chat(stream=stream, max_tokens=300)))
    await engine.arrived.wait()
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 307
    request.cancel()
    await freed(gateway, engine, used=7)


async def taught(gateway: RunningGateway, engine: ScriptedEngine, *, stream: bool = False) -> float:
    """The pool has answered once: 20 tokens in 0.1 s at least; how long it took at most."""

    async def in_a_while(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return await engine.answer(request, body)

    engine.behave, engine.usage = in_a_while, usage(7, 20)
    began = time.monotonic()
    assert await gateway.call_status(chat(stream=stream)) == 200
    took = time.monotonic() - began
    engine.behave = engine.silence
    engine.arrived.clear()
    return took


async def test_a_whole_answer_that_is_left_is_charged_by_the_time_that_the_engine_ran(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limited(gateway)
    answer_took = await taught(gateway, engine)
    before = await gateway.remaining_tokens()
    began = time.monotonic()
    request = asyncio.ensure_future(gateway.call_status(chat(max_tokens=300)))
    await engine.arrived.wait()
    arrived = time.monotonic()
    await asyncio.wait((request,), timeout=0.3)
    ran_at_least = time.monotonic() - arrived
    request.cancel()
    await gateway.until_left(engine)
    ran_at_most = time.monotonic() - began
    await gateway.until(lambda: gateway.grown("headworks_gateway_requests_total", outcome="cancelled"), 1, "its end")
    output = await gateway.grown("headworks_gateway_cancelled_tokens_total", tenant="alpha")
    assert 20 * ran_at_least / answer_took - 1 <= output <= min(300, 20 * ran_at_most / 0.1)
    refilled = 10 * (time.monotonic() - began) + 1
    assert before - 7 - output <= await gateway.remaining_tokens() <= before - 7 - output + refilled


async def test_a_pool_that_has_streamed_alone_knows_its_pace_too(gateway: RunningGateway, engine: ScriptedEngine):
    await taught(gateway, engine, stream=True)
    hurried = {"X-Request-Timeout-Ms": "300"}
    assert (await gateway.call(chat(max_tokens=300), headers=hurried))[0] == 504
    assert await gateway.grown("headworks_gateway_generation_tokens_total", tenant="alpha") > 20


async def test_a_whole_answer_that_is_left_is_charged_no_more_than_it_might_be(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await taught(gateway, engine)
    request = asyncio.ensure_future(gateway.call_status(chat(max_tokens=3, n=2)))
    await engine.arrived.wait()
    await asyncio.wait((request,), timeout=0.2)
    request.cancel()

    async def charged() -> float:
        return await gateway.grown("headworks_gateway_cancelled_tokens_total", tenant="alpha")

    await gateway.until(charged, 6, "what the engine may have made to be counted")


async def test_a_whole_answer_that_runs_into_its_deadline_is_charged_so_too(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await taught(gateway, engine)
    hurried = {"X-Request-Timeout-Ms": "300"}
    assert (await gateway.call(chat(max_tokens=300), headers=hurried))[0] == 504
    generated = await gateway.grown("headworks_gateway_generation_tokens_total", tenant="alpha") - 20
    assert 0 < generated <= 300


async def test_leaving_within_a_stream(gateway: RunningGateway, engine: ScriptedEngine):
    await limited(gateway)
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True, max_tokens=300)) as answer:
        await answer.content.readany()
        answer.close()
        await freed(gateway, engine, used=8)


async def test_leaving_before_the_body_is_complete(gateway: RunningGateway, engine: ScriptedEngine):
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    writer.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())
    await writer.drain()

    async def in_flight() -> float:
        return await gateway.metric("headworks_gateway_requests_in_flight")

    await gateway.until(in_flight, 1, "the request to begin")
    writer.close()
    await gateway.until(in_flight, 0, "the request to end")
    assert not engine.bodies


async def send_with_bytes_after_the_body(gateway: RunningGateway, stream: bool, *headers: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    body = json.dumps(chat(stream=stream, max_tokens=300))
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: g", f"Authorization: Bearer {KEYS['alpha']}", *headers)
    writer.write("\r\n".join((*lines, f"Content-Length: {len(body)}", "", f"{body}\r\n")).encode())
    await writer.drain()
    return writer


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_unseen_behind_bytes_after_the_body_ends_at_the_deadline(
    gateway: RunningGateway, engine: ScriptedEngine, stream: bool
):
    """docs/decisions/0004-pipelined-clients.md. Should this fail with `client_left`, that page is history."""
    await limited(gateway)
    engine.behave = engine.silence
    writer = await send_with_bytes_after_the_body(gateway, stream, "X-Request-Timeout-Ms: 1500")
    await engine.arrived.wait()
    writer.close()

    async def ended() -> float:
        return await gateway.grown("headworks_gateway_requests_total", reason="deadline_exceeded")

    await gateway.until(ended, 1, "the request to end at its deadline")
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0
    assert await gateway.remaining_tokens() >= 600 - 7, "prefilled, and not a token generated"
    await gateway.until_left(engine)
    engine.behave = engine.answer
    assert (await gateway.call(chat()))[0] == 200, "the one parallel place is free again"


async def test_leaving_behind_bytes_after_the_body_is_seen_once_a_stream_flows(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limited(gateway)
    engine.behave = engine.drip
    writer = await send_with_bytes_after_the_body(gateway, True)
    await engine.arrived.wait()
    writer.close()

    async def left() -> float:
        return await gateway.grown("headworks_gateway_requests_total", outcome="cancelled", reason="client_left")

    await gateway.until(left, 1, "the gateway to see that the client left")
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0


async def test_many_that_leave_at_once_leave_nothing_behind(gateway: RunningGateway, engine: ScriptedEngine):
    engines = {"e0": {**gateway.control.content["engines"]["e0"], "kv_capacity_tokens": 100_000}}
    await gateway.publish(changed(gateway.control.content, engines=engines))
    engine.behave = engine.one_token_then_silence
    answers = await asyncio.gather(*(gateway.open_stream(chat(stream=True)) for _ in range(50)))
    for answer in answers:
        await answer.content.readany()
    assert await gateway.metric("headworks_gateway_engine_requests", engine="e0") == 50
    for answer in answers:
        answer.close()

    async def left() -> tuple[int, float, float]:
        reserved = await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0")
        return engine.open_requests, reserved, await gateway.metric("headworks_gateway_engine_requests", engine="e0")

    await gateway.until(left, (0, 0.0, 0.0), "nothing to be left behind")
