"""The same request again, over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.caches.support import AnsweringEngine, cache_of, streamed, text_of, with_policy
from tests.gateway.fleet import MODEL, RunningGateway, changed, chat, event, running_gateway, terminate

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = itertools.count()


@pytest.fixture
def question() -> str:
    """One that no other test asks."""
    return f"question {next(_numbers)}"


async def kept(gateway: RunningGateway, body: dict[str, Any], **options: Any) -> bytes:
    """Ask until the answer comes out of the cache: it is kept just after it was sent."""

    async def state() -> str:
        return (await cache_of(gateway, body, **options))[1].partition(";")[0]

    await gateway.until(state, "exact", "the answer to be kept")
    return (await cache_of(gateway, body, **options))[0]


async def held_bytes(gateway: RunningGateway) -> float:
    return await gateway.metric("headworks_gateway_cache_bytes")


async def test_the_same_request_is_answered_as_before(exact: RunningGateway, engine: AnsweringEngine, question: str):
    first, state = await cache_of(exact, chat(question))
    assert state == "miss"
    assert await kept(exact, chat(question)) == first
    assert engine.asked == 1


async def test_a_hit_has_an_id_and_headers_of_its_own(exact: RunningGateway, engine: AnsweringEngine, question: str):
    await kept(exact, chat(question))
    async with exact.post(chat(question), headers={"X-Request-Id": "mine"}) as answer:
        await answer.read()
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["x-headworks-cache"].startswith("exact; age=")
    assert answer.headers["content-type"] == "application/json"


async def test_two_tenants_never_share(exact: RunningGateway, engine: AnsweringEngine, question: str):
    of_alpha = await kept(exact, chat(question))
    of_beta, state = await cache_of(exact, chat(question), tenant="beta")
    assert state == "miss"
    assert text_of(of_beta) != text_of(of_alpha)
    assert await kept(exact, chat(question), tenant="beta") == of_beta
    assert await kept(exact, chat(question)) == of_alpha


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"seed": 1},
        {"n": 2},
        {"max_tokens": 9},
        {"user": "somebody"},
        {"response_format": {"type": "json_object"}},
        {"nobody_knows_this": [1]},
        {"stream": True},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]},
    ],
)
async def test_another_parameter_is_another_request(
    exact: RunningGateway, engine: AnsweringEngine, question: str, change: dict[str, Any]
):
    await kept(exact, chat(question))
    assert (await cache_of(exact, {**chat(question), **change}))[1] == "miss"
    assert engine.asked == 2


async def test_order_and_white_space_of_fields_make_no_other_request(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    first = await kept(exact, chat(question, temperature=0.5))
    body = f' {{"temperature" : 0.5, "stream": false, "messages": [{{"role": "user", "content": "{question}"}}],\n'
    async with exact.post(f'{body} "model":"{MODEL}"}}'.encode()) as answer:
        assert await answer.read() == first


async def test_streams_are_given_again_byte_for_byte(exact: RunningGateway, engine: AnsweringEngine, question: str):
    first, _ = await cache_of(exact, chat(question, stream=True))
    async with exact.post(chat(question, stream=True)) as answer:
        again = await answer.read()
    assert again == first
    # Each event as it was, and not all of them in one.
    assert again.count(b"data: ") == len(streamed("answer number 1")) - 1
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-headworks-cache"].startswith("exact")
    assert engine.asked == 1


async def test_a_long_stream_is_given_again_whole(exact: RunningGateway, engine: AnsweringEngine, question: str):
    async def long(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await engine.stream(request, *streamed("word " * 3_000))

    engine.behave = long
    first, _ = await cache_of(exact, chat(question, stream=True))
    assert len(first) > 200_000
    assert await kept(exact, chat(question, stream=True)) == first


async def test_a_stream_with_its_usage_is_another_one(exact: RunningGateway, engine: AnsweringEngine, question: str):
    await kept(exact, chat(question, stream=True))
    shown, state = await cache_of(exact, chat(question, stream=True, stream_options={"include_usage": True}))
    assert (state, b"usage" in shown) == ("miss", True)


@pytest.mark.parametrize("wish", ["no-store", "no-cache", "max-age=0", "private, No-Cache"])
async def test_a_client_may_ask_for_a_fresh_answer(
    exact: RunningGateway, engine: AnsweringEngine, question: str, wish: str
):
    first = await kept(exact, chat(question))
    fresh, state = await cache_of(exact, chat(question), headers={"Cache-Control": wish})
    assert fresh != first
    assert state == ("bypass" if wish == "no-store" else "miss")


async def test_a_fresh_answer_takes_the_place_of_the_kept_one_unless_it_may_not_be_kept(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    first = await kept(exact, chat(question))
    await cache_of(exact, chat(question), headers={"Cache-Control": "no-store"})
    assert await kept(exact, chat(question)) == first
    fresh, _ = await cache_of(exact, chat(question), headers={"Cache-Control": "no-cache"})

    async def given() -> bytes:
        return await kept(exact, chat(question))

    await exact.until(given, fresh, "the fresh answer to be given")


@pytest.mark.parametrize("reason", ["length", "abort", "content_filter", "tool_calls"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_not_whole_is_not_kept(
    exact: RunningGateway, engine: AnsweringEngine, question: str, reason: str, stream: bool
):
    engine.finish_reason = reason
    before = await held_bytes(exact)
    for _ in range(2):
        async with exact.post(chat(question, stream=stream)) as answer:
            await answer.read()
        assert answer.headers.get("x-headworks-cache", "miss") == "miss"
    assert engine.asked >= 2
    assert await held_bytes(exact) == before


async def test_an_answer_of_the_length_that_was_asked_for_is_whole(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    engine.finish_reason = "length"
    first, _ = await cache_of(exact, chat(question, max_tokens=2))
    assert await kept(exact, chat(question, max_tokens=2)) == first


async def test_failures_are_not_kept(exact: RunningGateway, engine: AnsweringEngine, question: str):
    engine.behave = engine.failing(400)
    assert await exact.refusal(chat(question)) == (400, "engine_rejected")
    engine.behave = engine.number
    assert (await cache_of(exact, chat(question)))[1] == "miss"


@pytest.mark.parametrize("ending", [b"", event({"error": {"message": "out of memory", "code": 500}})])
async def test_a_stream_that_broke_off_is_not_kept(
    exact: RunningGateway, engine: AnsweringEngine, question: str, ending: bytes
):
    async def broken(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await engine.stream(request, *streamed("half an answer")[:-1], ending)

    engine.behave = broken
    for asked in (1, 2):
        async with exact.post(chat(question, stream=True)) as answer:
            await answer.read()
        assert answer.headers["x-headworks-cache"] == "miss"
        assert engine.asked == asked


async def test_a_client_that_leaves_while_its_answer_is_recorded_leaves_nothing(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    before = await held_bytes(exact)
    engine.behave = engine.one_token_then_silence
    async with exact.post(chat(question, stream=True)) as answer:
        await answer.content.readany()
    await exact.until_left(engine)

    async def running() -> float:
        return await exact.metric("headworks_gateway_requests_in_flight")

    await exact.until(running, 0, "the request to end")
    assert await held_bytes(exact) == before
    engine.behave = engine.number
    assert (await cache_of(exact, chat(question, stream=True)))[1] == "miss"


async def test_a_client_that_leaves_during_a_replay_hurts_nobody(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    async def long(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await engine.stream(request, *streamed("word " * 8_000))

    engine.behave = long
    whole = await kept(exact, chat(question, stream=True))
    answer = await exact.open_stream(chat(question, stream=True))
    assert answer.headers["x-headworks-cache"].startswith("exact")
    answer.close()

    async def running() -> float:
        return await exact.metric("headworks_gateway_requests_in_flight")

    await exact.until(running, 0, "the replay to end")
    assert await kept(exact, chat(question, stream=True)) == whole


async def test_hit_rate_is_counted_by_tenant_and_model(exact: RunningGateway, engine: AnsweringEngine, question: str):
    labels = {"cache": "exact", "tenant": "beta", "model": MODEL}

    async def counts() -> tuple[float, float]:
        names = ("headworks_gateway_cache_lookups_total", "headworks_gateway_cache_hits_total")
        lookups, hits = [await exact.metric(name, **labels) for name in names]
        return lookups, hits

    lookups, hits = await counts()
    await cache_of(exact, chat(question), tenant="beta")
    await cache_of(exact, chat(question), tenant="beta")
    assert await counts() == (lookups + 2, hits + 1)


async def test_a_hit_is_told_of_with_its_numbers_and_costs_less_than_a_millisecond(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    whole = await kept(exact, chat(question, stream=True))
    mine = f"{question.replace(' ', '-')}-again-"

    def hits() -> list[dict[str, Any]]:
        # Of those below alone: what the tests before have sent may come meanwhile.
        told = [row for row in exact.control.decisions if row["request_id"].startswith(mine)]
        return [next(note for note in row["stages"] if note["stage"] == "answer_from_cache") for row in told]

    # Of admitted requests the first of a second and every hundredth are told of.
    for number in range(300):
        await cache_of(exact, chat(question, stream=True), headers={"X-Request-Id": f"{mine}{number}"})

    async def enough() -> bool:
        return len(hits()) >= 3

    await exact.until(enough, True, "the hits to be told of")
    assert {note["numbers"]["bytes"] for note in hits()} == {len(whole)}
    assert all(note["numbers"]["age_ms"] >= 0 for note in hits())
    # The look-up, the quota and the sending; the median, since the machine has other work.
    assert statistics.median(note["took_us"] for note in hits()) < 1_000


async def test_embeddings_and_other_apis_are_kept_and_responses_are_not(
    exact: RunningGateway, engine: AnsweringEngine, question: str
):
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        document: dict[str, Any] = {"data": [{"embedding": [next(_numbers)]}], "usage": {"prompt_tokens": 1}}
        if request.path == "/v1/completions":
            document = {"choices": [{"text": str(next(_numbers)), "finish_reason": "stop"}]}
        elif request.path == "/v1/messages":
            document = {"content": [{"type": "text", "text": str(next(_numbers))}], "stop_reason": "end_turn"}
        elif request.path == "/v1/responses":
            document = {"id": f"resp_{next(_numbers)}", "status": "completed", "output": []}
        return web.json_response(document)

    engine.behave = answer
    bodies: dict[str, dict[str, Any]] = {
        "/v1/embeddings": {"model": MODEL, "input": question},
        "/v1/completions": {"model": MODEL, "prompt": question},
        "/v1/messages": {"model": MODEL, "messages": [{"role": "user", "content": question}], "max_tokens": 9},
        "/v1/responses": {"model": MODEL, "input": question},
    }
    for path, body in bodies.items():
        first, state = await cache_of(exact, body, path=path)
        if path == "/v1/responses":
            assert state == ""
            assert (await cache_of(exact, body, path=path))[0] != first
        else:
            assert await kept(exact, body, path=path) == first


# With a gateway of their own


async def test_nothing_is_cached_unless_a_policy_says_so(tmp_path, engine: AnsweringEngine):
    content = with_policy(engine.url)
    content = changed(content, tenants__alpha={}, tenants__beta={}, cache_policies__off={})
    async with running_gateway(tmp_path, content) as gateway:
        for asked in (1, 2):
            assert (await cache_of(gateway, chat()))[1] == ""
            assert engine.asked == asked
        # A model's policy holds for tenants that name none; one that names another has that.
        model = {**content["models"][MODEL], "cache_policy": "faq"}
        await gateway.publish(changed(content, models={MODEL: model}, tenants__beta={"cache_policy": "off"}))
        await kept(gateway, chat())
        for asked in (4, 5):
            assert (await cache_of(gateway, chat(), tenant="beta"))[1] in ("", "miss")
            assert engine.asked == asked


async def test_limits_of_a_policy_hold_and_changes_of_the_configuration_are_another_answer(
    tmp_path, engine: AnsweringEngine
):
    content = with_policy(engine.url, exact={"max_entries": 2})
    async with running_gateway(tmp_path, content) as gateway:
        await kept(gateway, chat("one"))
        await kept(gateway, chat("two"))
        await kept(gateway, chat("one"))
        await kept(gateway, chat("three"))
        assert engine.asked == 3
        await kept(gateway, chat("one"))
        assert engine.asked == 3
        # The one that was not used for the longest has gone.
        assert (await cache_of(gateway, chat("two")))[1] == "miss"

        await kept(gateway, chat("one"))
        engines = {"e0": {**content["engines"]["e0"], "served_model": "served-8b-v2"}}
        await gateway.publish(changed(content, engines=engines))
        assert (await cache_of(gateway, chat("one")))[1] == "miss"

        await kept(gateway, chat("one"))
        await gateway.publish(changed(content, engines=engines, cache_policies__faq={"exact": {"ttl_ms": 0}}))
        assert (await cache_of(gateway, chat("one")))[1] == "miss"

        await gateway.publish(changed(content, engines=engines, tenants__alpha={}))
        assert await held_bytes(gateway) == 0


async def test_an_answer_whose_policy_has_gone_meanwhile_is_not_kept(tmp_path, engine: AnsweringEngine):
    content = with_policy(engine.url)
    async with running_gateway(tmp_path, content) as gateway:
        tenants: tuple[dict[str, Any], ...] = ({}, {"cache_policy": "other"})
        for tenant in tenants:
            engine.behave, engine.release = waiting(engine), asyncio.Event()
            engine.arrived.clear()
            asking = asyncio.ensure_future(cache_of(gateway, chat()))
            await engine.arrived.wait()
            await gateway.publish(changed(content, cache_policies__other={}, tenants__alpha=tenant))
            engine.release.set()
            assert (await asking)[1] == "miss"
            await gateway.publish(content)
            assert await held_bytes(gateway) == 0


def waiting(engine: AnsweringEngine) -> Any:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await engine.release.wait()
        return await engine.number(request, body)

    return answer


async def test_an_answer_is_given_for_its_time_alone(tmp_path, engine: AnsweringEngine):
    async with running_gateway(tmp_path, with_policy(engine.url, exact={"ttl_ms": 300})) as gateway:
        first, _ = await cache_of(gateway, chat())

        async def given() -> bool:
            return (await cache_of(gateway, chat()))[0] == first

        await gateway.until(given, False, "the answer to be too old")


async def test_memory_is_bounded_over_all_tenants(tmp_path, engine: AnsweringEngine):
    async def large(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await engine.stream(request, *streamed("word " * 3_000))

    environment = {"HEADWORKS_GATEWAY_CACHE_BYTES": str(2**21), "HEADWORKS_GATEWAY_CACHE_ANSWER_BYTES": "400000"}
    async with running_gateway(tmp_path, with_policy(engine.url), environment) as gateway:
        engine.behave = large
        for number in range(8):
            await cache_of(gateway, chat(f"large {number}", stream=True), tenant=("alpha", "beta")[number % 2])
            assert await held_bytes(gateway) <= 2**21
        assert await held_bytes(gateway) > 2**20

        async def larger(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            return await engine.stream(request, *streamed("word " * 6_000))

        engine.behave = larger
        for _ in range(2):
            assert (await cache_of(gateway, chat("too large", stream=True)))[1] == "miss"


async def test_a_hit_takes_a_request_and_no_tokens_and_the_limit_of_requests_holds(tmp_path, engine: AnsweringEngine):
    limits = {"cache_policy": "faq", "rpm_limit": 4, "tpm_limit": 1000}
    async with running_gateway(tmp_path, changed(with_policy(engine.url), tenants__alpha=limits)) as gateway:
        await cache_of(gateway, chat())
        tokens = await gateway.remaining_tokens()
        statuses: list[int] = []
        # One comes back in 15 s.
        while len(statuses) < 6 and 429 not in statuses:
            statuses.append(await gateway.call_status(chat()))
        assert statuses in ([200] * 3 + [429], [200] * 4 + [429])
        assert await gateway.remaining_tokens() >= tokens
        assert engine.asked == 1


async def test_a_drain_during_a_recording_keeps_no_half_answer(tmp_path, engine: AnsweringEngine):
    environment = {"HEADWORKS_GATEWAY_DRAIN_SECONDS": "0"}
    async with running_gateway(tmp_path, with_policy(engine.url), environment) as gateway:
        engine.behave = engine.one_token_then_silence
        async with gateway.post(chat(stream=True)) as answer:
            await answer.content.readany()
            terminate(gateway)
            assert b"draining" in await answer.content.read()
        await asyncio.to_thread(gateway.process.wait)
        assert gateway.process.exit_code == 0
