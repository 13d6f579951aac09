"""Every API that is served: what the engine is sent, what is reserved and settled, and how a stream fails in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from gateway.settings import RETRY_BURST as RETRIES
from tests.gateway.fleet import KEYS, MODEL, RunningGateway, changed, running_gateway, shared_configuration
from tests.gateway.protocols import BODIES, ERROR_EVENTS, PATHS, STREAMED, SpeakingEngine, data_of, stream_parts

pytestmark = pytest.mark.asyncio(loop_scope="module")
APIS = pytest.mark.parametrize("api", PATHS)
STREAMS = pytest.mark.parametrize("api", STREAMED)


def never_breaking(engines: tuple[SpeakingEngine, SpeakingEngine], **paths: Any) -> dict[str, Any]:
    return changed(shared_configuration(*(engine.url for engine in engines)), **paths)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines() -> AsyncIterator[tuple[SpeakingEngine, SpeakingEngine]]:
    pair = SpeakingEngine(), SpeakingEngine()
    for engine in pair:
        await engine.start()
    yield pair
    for engine in pair:
        await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    engines: tuple[SpeakingEngine, SpeakingEngine], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("endpoints")
    async with running_gateway(folder, never_breaking(engines), {RETRIES.name: "1000"}) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(
    shared: RunningGateway, engines: tuple[SpeakingEngine, SpeakingEngine]
) -> AsyncIterator[RunningGateway]:
    """The gateway, with engines that behave."""
    for engine in engines:
        engine.behave = engine.answer
        engine.bodies.clear()
    yield shared


def last_body(engines: tuple[SpeakingEngine, SpeakingEngine]) -> dict[str, Any]:
    ((body,),) = ([*engine.bodies] for engine in engines if engine.bodies)
    return body


async def settled(gateway: RunningGateway) -> tuple[float, float]:
    """(prompt, output) tokens settled so far, once nothing is running."""

    async def running() -> float:
        return await gateway.metric("headworks_gateway_requests_in_flight")

    await gateway.until(running, 0, "all requests to end")
    return (
        await gateway.metric("headworks_gateway_prompt_tokens_total"),
        await gateway.metric("headworks_gateway_generation_tokens_total"),
    )


async def spent(gateway: RunningGateway, request: Any) -> tuple[float, float]:
    before = await settled(gateway)
    await request
    after = await settled(gateway)
    return after[0] - before[0], after[1] - before[1]


async def test_the_engine_is_asked_under_the_same_path_and_its_own_names(fresh, engines):
    for api, path in PATHS.items():
        for engine in engines:
            engine.bodies.clear()
        body = {**BODIES[api], "unknown": {"kept": [1.5, None]}, "priority": -5}
        status, _, _ = await fresh.call(body, path=path)
        assert status == 200
        sent = last_body(engines)
        bound = {"responses": "max_output_tokens", "embeddings": None, "rerank": None}.get(api, "max_tokens")
        assert sent.pop(bound or "", 50) == 50
        assert sent.pop("priority", None) != -5
        kept = {name: value for name, value in body.items() if name not in ("priority", bound)}
        assert sent == {**kept, "model": "served-8b"}


@APIS
async def test_a_whole_answer_is_settled_on_what_the_engine_says(fresh, api):
    used = await spent(fresh, fresh.call(BODIES[api], path=PATHS[api]))
    assert used == ((9, 0) if api in ("embeddings", "rerank") else (7, 2))


async def read_stream(gateway: RunningGateway, api: str, **fields: Any) -> bytes:
    async with gateway.post({**BODIES[api], "stream": True, **fields}, path=PATHS[api]) as answer:
        data: bytes = await answer.read()
        return data


@STREAMS
async def test_a_stream_is_settled_on_what_the_engine_says_a_zero_included(fresh, engines, api):
    for counts in ((7, 2), (0, 0)):

        async def answer(request, body, counts=counts):
            return await engines[0].stream(request, *stream_parts(api, *counts))

        for engine in engines:
            engine.behave = answer
        assert await spent(fresh, read_stream(fresh, api)) == counts


@STREAMS
async def test_a_stream_that_tells_no_usage_is_measured_and_counted(fresh, engines, api):
    async def answer(request, body):
        return await engines[0].stream(request, *stream_parts(api, told=False))

    for engine in engines:
        engine.behave = answer
    measured = {"chat": 7, "completions": 2, "responses": 6, "messages": 7}[api]
    assert await spent(fresh, read_stream(fresh, api)) == (measured, 2)


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_events_of_apis_that_tell_their_usage_pass_as_they_came(fresh, api):
    assert await read_stream(fresh, api) == b"".join(stream_parts(api))


async def test_embeddings_and_rerank_reserve_their_input_alone_and_one_sequence(fresh, engines):
    await fresh.publish(never_breaking(engines, tenants__alpha={"max_parallel_requests": 1}))
    for engine in engines:
        engine.behave = engine.silence
    try:
        for api, tokens in (("embeddings", 2), ("rerank", 4)):
            asking = asyncio.ensure_future(fresh.call(BODIES[api], path=PATHS[api]))

            async def reserved() -> float:
                return float(await fresh.metric("headworks_gateway_kv_reserved_tokens"))

            await fresh.until(reserved, tokens, f"{tokens} tokens of KV cache to be reserved")
            for engine in engines:
                engine.release.set()
            status, _, headers = await asking
            assert (status, headers["x-headworks-prompt-tokens"]) == (200, f"{tokens};source=estimate")
            assert "x-headworks-max-tokens" not in headers
            await fresh.until(reserved, 0, "the reservation to be given back")
            for engine in engines:
                engine.release.clear()
    finally:
        for engine in engines:
            engine.release.set()
        await fresh.publish(never_breaking(engines))


async def test_many_inputs_may_be_longer_together_than_one_may_be(fresh, engines):
    ids = [[1] * 1_500] * 4
    assert (await fresh.call({"model": MODEL, "input": ids}, path=PATHS["embeddings"]))[0] == 200
    assert (await fresh.call({"model": MODEL, "prompt": ids, "max_tokens": 9}, path=PATHS["completions"]))[0] == 200
    assert engines[0].bodies or engines[1].bodies


@STREAMS
async def test_an_error_that_comes_first_is_tried_again_elsewhere(fresh, engines, api):
    served: list[str] = []

    async def err_once(request, body):
        served.append(request.path)
        opening = stream_parts(api)[:1] if api == "responses" else []
        parts = [*opening, ERROR_EVENTS[api]] if len(served) == 1 else stream_parts(api)
        return await engines[0].stream(request, *parts)

    for engine in engines:
        engine.behave = err_once
    text = await read_stream(fresh, api)
    assert served == [PATHS[api]] * 2
    assert b"full" not in text
    assert data_of(text)


@STREAMS
async def test_a_stream_that_fails_later_ends_in_an_error_of_its_api(fresh, engines, api):
    good = stream_parts(api)[:3]

    async def err_later(request, body):
        parts = good[:2] if api in ("chat", "completions") else good
        return await engines[0].stream(request, *parts, ERROR_EVENTS[api])

    for engine in engines:
        engine.behave = err_later
    text = await read_stream(fresh, api)
    last = data_of(text)[-1]
    assert last["error"]["code"] in ("engine_overloaded", "engine_error")
    assert engines[0].url.encode() not in text
    if api in ("responses", "messages"):
        assert text.rstrip().rpartition(b"\n\n")[2].startswith(b"event: error\n")
        assert last["type"] == "error"
    if api == "responses":
        assert (last["code"], last["sequence_number"]) == (last["error"]["code"], 3)


async def test_a_stream_that_fails_later_is_raised_by_both_clients(fresh, engines):
    async def err_later(request, body):
        api = next(api for api, path in PATHS.items() if path == request.path)
        return await engines[0].stream(request, *stream_parts(api)[:2], ERROR_EVENTS[api])

    for engine in engines:
        engine.behave = err_later
    openai_client: Any = openai.AsyncOpenAI(base_url=f"{fresh.url}/v1", api_key=KEYS["alpha"], max_retries=0)
    for stream in (
        await openai_client.chat.completions.create(**BODIES["chat"], stream=True),
        await openai_client.completions.create(**BODIES["completions"], stream=True),
        await openai_client.responses.create(**BODIES["responses"], stream=True),
    ):
        with pytest.raises(openai.APIError) as raised:
            [event async for event in stream]
        assert raised.value.code in ("engine_overloaded", "engine_error")
    anthropic_client: Any = anthropic.AsyncAnthropic(base_url=fresh.url, api_key=KEYS["alpha"], max_retries=0)
    stream = await anthropic_client.messages.create(**BODIES["messages"], stream=True)
    with pytest.raises(anthropic.APIStatusError) as failed:
        [event async for event in stream]
    assert "engine_" in str(failed.value)


async def test_comments_between_events_disturb_neither_client(fresh, engines):
    async def comment(request, body):
        api = next(api for api, path in PATHS.items() if path == request.path)
        parts = [part for event in stream_parts(api) for part in (b": waiting\n\n", event)]
        return await engines[0].stream(request, *parts)

    for engine in engines:
        engine.behave = comment
    openai_client: Any = openai.AsyncOpenAI(base_url=f"{fresh.url}/v1", api_key=KEYS["alpha"], max_retries=0)
    chunks = await openai_client.chat.completions.create(**BODIES["chat"], stream=True)
    assert "".join([chunk.choices[0].delta.content async for chunk in chunks]) == "ab"
    response = await openai_client.responses.create(**BODIES["responses"], stream=True)
    assert [event.type async for event in response][-1] == "response.completed"
    anthropic_client: Any = anthropic.AsyncAnthropic(base_url=fresh.url, api_key=KEYS["alpha"], max_retries=0)
    async with anthropic_client.messages.stream(**BODIES["messages"]) as stream:
        assert "".join([text async for text in stream.text_stream]) == "aa"


@APIS
async def test_an_engines_refusal_is_told_in_the_shape_of_the_api(fresh, engines, api):
    kind = {"type": "error", "error": {"type": "invalid_request_error", "message": f"no, says {engines[0].url}"}}
    for engine in engines:
        engine.behave = engine.failing(400, kind if api == "messages" else {"error": {"message": "no"}})
    status, document, _ = await fresh.call(BODIES[api], path=PATHS[api])
    assert (status, document["error"]["code"]) == (400, "engine_rejected")
    assert (document.get("type") == "error") == (api == "messages")
    assert engines[0].url not in str(document)


@pytest.mark.parametrize("fields", [{"background": True}, {"previous_response_id": "r"}, {"conversation": "c"}])
async def test_what_engines_would_have_to_remember_is_refused_by_name(fresh, fields):
    status, document, _ = await fresh.call({**BODIES["responses"], **fields}, path=PATHS["responses"])
    assert (status, document["error"]["code"], document["error"]["param"]) == (400, "bad_field", next(iter(fields)))


async def test_a_failed_response_under_200_is_no_answer(fresh, engines):
    failed = {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "out of memory"}}
    for engine in engines:
        engine.behave = engine.failing(200, {**failed, "usage": {"input_tokens": 7, "output_tokens": 0}})
    status, document, _ = await fresh.call(BODIES["responses"], path=PATHS["responses"])
    assert (status, document["error"]["code"]) == (502, "engine_error")
