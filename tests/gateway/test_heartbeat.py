"""A stream that has nothing to say yet says so in comments, which take nothing away: not a retry, not an error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio
from aiohttp import web

from gateway.usage import MAX_EVENT_BYTES
from tests.gateway.fleet import (
    DONE,
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
    scripted_engine,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEARTBEAT_SECONDS = 0.2
SETTING = "HEADWORKS_GATEWAY_HEARTBEAT_SECONDS"
WAITING = ": waiting\n\n"
# Long enough for two comments, wherever a busy machine puts them.
QUIET_SECONDS = 3 * HEARTBEAT_SECONDS

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


engine = pytest_asyncio.fixture(scripted_engine, scope="module", loop_scope="module")
second_engine = pytest_asyncio.fixture(scripted_engine, scope="module", loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beating(
    engine: ScriptedEngine, second_engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningGateway]:
    content = configuration(engine.url, second_engine.url)
    # The first engine is asked first.
    content["pools"]["spare"] = {"model": MODEL}
    content["engines"]["e1"]["pool"] = "spare"
    for pool in content["pools"].values():
        pool["breaker"] = {"minimum_requests": 1000}
    content["routes"]["all"] = {"order": 10, "pools": {"main": 1000}, "fallbacks": {"spare": {"order": 1}}}
    folder = tmp_path_factory.mktemp("gateway")
    async with running_gateway(folder, content, {SETTING: str(HEARTBEAT_SECONDS)}) as gateway:
        yield gateway


def paced(*parts: bytes | float) -> Behaviour:
    """A stream of these bytes; a number is a pause in seconds."""

    async def speak(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            if isinstance(part, bytes):
                await response.write(part)
            else:
                await asyncio.sleep(part)
        return response

    return speak


def late(behave: Behaviour) -> Behaviour:
    async def wait(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(QUIET_SECONDS)
        return await behave(request, body)

    return wait


A, B = event(delta("a")), event(delta("b"))


async def test_a_long_wait_for_the_first_event_is_filled(beating: RunningGateway, engine: ScriptedEngine):
    engine.behave = late(paced(A, DONE))
    async with beating.post(chat(stream=True)) as answer:
        assert answer.content_type == "text/event-stream"
        assert answer.headers["x-request-id"]
        text = await answer.text()
    assert text.startswith(WAITING)
    assert text.replace(WAITING, "") == (A + DONE).decode()


async def test_a_pause_between_events_is_filled_and_no_comment_follows_the_end(
    beating: RunningGateway, engine: ScriptedEngine
):
    engine.behave = paced(A, QUIET_SECONDS, B, DONE)
    async with beating.post(chat(stream=True)) as answer:
        text = await answer.text()
    begin, *waits, end = text.split(WAITING)
    assert waits.count("") == len(waits) >= 1
    assert (begin, end) == (A.decode(), (B + DONE).decode())


async def test_a_comment_never_stands_within_an_event(beating: RunningGateway, engine: ScriptedEngine):
    long = event(delta("x" * (2 * MAX_EVENT_BYTES)))
    half = MAX_EVENT_BYTES + 1000
    engine.behave = paced(A, long[:half], QUIET_SECONDS, long[half:], DONE)
    async with beating.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert text.replace(WAITING, "") == (A + long + DONE).decode()
    assert long.decode() in text


async def test_events_that_come_quickly_leave_no_room_for_comments(beating: RunningGateway, engine: ScriptedEngine):
    pauses: list[bytes | float] = [B, HEARTBEAT_SECONDS / 20] * 40
    engine.behave = paced(*pauses)
    async with beating.post(chat(stream=True)) as answer:
        assert await answer.text() == (B * 40).decode()


async def test_another_engine_may_still_be_tried(
    beating: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    engine.behave, second_engine.behave = late(engine.failing(500)), second_engine.answer
    engine.bodies.clear()
    second_engine.bodies.clear()
    async with beating.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert len(engine.bodies) == len(second_engine.bodies) == 1
    assert text.startswith(WAITING)
    assert '"code"' not in text
    assert text.endswith(DONE.decode())


@pytest.mark.parametrize(
    ("behave", "headers", "reason"),
    [
        (lambda engine: engine.silence, {"X-Request-Timeout-Ms": "700"}, "deadline_exceeded"),
        (lambda engine: late(engine.failing(400)), {}, "engine_rejected"),
        (lambda engine: late(paced(event({"error": {"message": "no", "code": 400}}))), {}, "engine_rejected"),
    ],
)
async def test_what_is_refused_later_is_refused_by_an_event(
    beating: RunningGateway, engine: ScriptedEngine, behave: Callable[[ScriptedEngine], Behaviour],
    headers: dict[str, str], reason: str,
):  # fmt: skip
    engine.behave = behave(engine)
    async with beating.post(chat(stream=True), headers=headers) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert text.startswith(WAITING)
    assert text.replace(WAITING, "").startswith('data: {"error":')
    assert f'"code":"{reason}"' in text


async def test_an_engine_that_answers_a_begun_stream_with_something_else_has_failed(
    beating: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    async def whole(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"choices": []})

    engine.behave = second_engine.behave = late(whole)
    async with beating.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert text.startswith(WAITING)
    assert '"code":"engine_error"' in text
    assert '"choices"' not in text


async def test_what_such_an_engine_says_it_used_is_not_what_the_other_one_used(
    beating: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    async def whole(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"choices": [], "usage": usage(1, 1_000)})

    async def generated() -> float:
        return await beating.metric("headworks_gateway_generation_tokens_total")

    before = await generated()
    engine.behave, second_engine.behave = late(whole), second_engine.answer
    async with beating.post(chat(stream=True)) as answer:
        assert (await answer.text()).endswith(DONE.decode())
    await beating.until(generated, before + 2, "two tokens to be counted")


async def test_a_whole_answer_has_none(beating: RunningGateway, engine: ScriptedEngine):
    engine.behave = late(engine.answer)
    assert (await beating.call(chat()))[0] == 200


async def test_leaving_while_comments_come_frees_the_engine(beating: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    async with beating.post(chat(stream=True)) as answer:
        assert await answer.content.readany() == WAITING.encode()
        answer.close()
        await beating.until_left(engine)


async def test_openais_client_sees_tokens_alone(beating: RunningGateway, engine: ScriptedEngine):
    engine.behave = late(paced(A, QUIET_SECONDS, B, DONE))
    async with openai.AsyncOpenAI(base_url=f"{beating.url}/v1", api_key=KEYS["alpha"]) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], stream=True
        )
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["a", "b"]


async def test_anthropics_client_sees_its_events_alone(beating: RunningGateway, engine: ScriptedEngine):
    def named(document: dict[str, Any]) -> bytes:
        return b"event: %s\n" % document["type"].encode() + event(document)

    message = {"id": "m", "type": "message", "role": "assistant", "model": "served-8b", "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 0}}
    engine.behave = late(
        paced(
            named({"type": "message_start", "message": start}),
            named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            QUIET_SECONDS,
            named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
            named({"type": "content_block_stop", "index": 0}),
            named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
            named({"type": "message_stop"}),
        )
    )
    async with anthropic.AsyncAnthropic(base_url=beating.url, auth_token=KEYS["alpha"], max_retries=0) as client:
        ask: dict[str, Any] = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
        async with client.messages.stream(**ask) as stream:
            assert [text async for text in stream.text_stream] == ["hi"]
            assert (await stream.get_final_message()).stop_reason == "end_turn"


async def test_zero_is_never(engine: ScriptedEngine, tmp_path: Path):
    engine.behave = paced(0.5, A, 0.5, DONE)
    async with running_gateway(tmp_path, configuration(engine.url), {SETTING: "0"}) as gateway:
        asked = time.monotonic()
        async with gateway.post(chat(stream=True)) as answer:
            assert await answer.text() == (A + DONE).decode()
        assert time.monotonic() - asked >= 1
