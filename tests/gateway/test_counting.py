"""What the metrics say of requests that have ended: goodput, work for nobody, slow clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    KEYS,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLO = "headworks_gateway_slo_requests_total"
PROMISES = "headworks_gateway_slo_promises_total"

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("counting"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url))
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def promising(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    """The pool promises what every request here meets; the class `batch` a first token in no time."""
    content = changed(
        configuration(engine.url),
        pools__main={"model": "acme/small-8b", "ttft_slo_ms": 60_000, "tpot_slo_ms": 60_000, "e2e_slo_ms": 60_000},
        priority_classes__batch={"rank": 9, "ttft_slo_ms": 0},
        priority_classes__hasty={"rank": 9, "e2e_slo_ms": 0},
        tenants__alpha={"priority_classes": {"interactive": True, "batch": True, "hasty": True}},
    )
    await shared.begin_anew(content)
    return shared


async def judged(gateway: RunningGateway) -> tuple[float, float]:
    return await gateway.grown(SLO, pool="main", outcome="met"), await gateway.grown(SLO, outcome="missed")


async def test_first_tokens_are_counted_by_how_long_prompts_are(gateway: RunningGateway):
    sized = "headworks_gateway_sized"
    async with gateway.post(chat(stream=True)) as answer:
        await answer.read()
    await ended(gateway, "ok")
    assert await gateway.grown(f"{sized}_requests_total", pool="main", size="under_256") == 1
    assert 0 < await gateway.grown(f"{sized}_prompt_tokens_total", size="under_256") < 256
    assert 0 < await gateway.grown(f"{sized}_ttft_seconds_total", size="under_256") < 60
    # Of a whole answer nobody saw the first token.
    async with gateway.post(chat(stream=False)) as answer:
        await answer.read()
    assert await gateway.grown(f"{sized}_requests_total") == 1


async def ended(gateway: RunningGateway, outcome: str) -> None:
    async def count() -> float:
        return await gateway.grown("headworks_gateway_requests_total", outcome=outcome)

    await gateway.until(count, 1, f"a request to be counted as {outcome}")


@pytest.mark.parametrize(
    ("priority_class", "stream", "met"),
    [
        ("interactive", True, True),
        ("interactive", False, True),
        ("batch", True, False),
        ("batch", False, True),
        ("hasty", True, False),
        ("hasty", False, False),
    ],
)
async def test_an_answer_is_judged_by_its_own_times(
    promising: RunningGateway, priority_class: str, stream: bool, met: bool
):
    async with promising.post(chat(stream=stream), headers={"X-Priority-Class": priority_class}) as answer:
        await answer.read()
    await ended(promising, "ok")
    assert await judged(promising) == (float(met), float(not met))
    assert await promising.grown(SLO, priority_class=priority_class, tenant="alpha") == 1


@pytest.mark.parametrize(
    ("priority_class", "broken"), [("interactive", set()), ("batch", {"ttft"}), ("hasty", {"e2e"})]
)
async def test_each_promise_is_judged_by_itself(promising: RunningGateway, priority_class: str, broken: set[str]):
    async with promising.post(chat(stream=True), headers={"X-Priority-Class": priority_class}) as answer:
        await answer.read()
    await ended(promising, "ok")
    for slo in ("ttft", "e2e"):
        missed = await promising.grown(PROMISES, pool="main", slo=slo, outcome="missed")
        met = await promising.grown(PROMISES, pool="main", slo=slo, outcome="met")
        assert (met, missed) == (float(slo not in broken), float(slo in broken))


async def test_of_a_failure_no_promise_is_judged(promising: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.failing(500)
    assert (await promising.call(chat()))[0] == 502
    assert await promising.grown(PROMISES) == 0


async def test_a_failure_misses_and_a_refusal_before_an_engine_is_not_judged(
    promising: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.failing(500)
    assert (await promising.call(chat()))[0] == 502
    assert await judged(promising) == (0, 1)
    assert (await promising.call(chat(max_tokens=-1)))[0] == 400
    assert await judged(promising) == (0, 1)


@pytest.mark.parametrize(("priority_class", "missed"), [("interactive", 0), ("batch", 1)])
async def test_a_client_that_left_counts_where_it_had_reason_to(
    promising: RunningGateway, engine: ScriptedEngine, priority_class: str, missed: int
):
    engine.behave = engine.silence
    request = asyncio.ensure_future(
        promising.http.post(
            f"{promising.url}/v1/chat/completions",
            json=chat(stream=True),
            headers={"Authorization": f"Bearer {KEYS['alpha']}", "X-Priority-Class": priority_class},
        )
    )
    await engine.arrived.wait()
    request.cancel()
    await ended(promising, "cancelled")
    assert await judged(promising) == (0, missed)


async def test_nothing_is_judged_where_nothing_is_promised(gateway: RunningGateway):
    assert (await gateway.call(chat()))[0] == 200
    assert await gateway.grown(SLO) == 0


async def test_tokens_that_came_for_a_client_that_left(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True)) as answer:
        await answer.content.readany()
        answer.close()
    await ended(gateway, "cancelled")
    assert await gateway.grown("headworks_gateway_cancelled_tokens_total", pool="main", tenant="alpha") == 1
    assert await gateway.grown("headworks_gateway_tokens_after_cancel_total") == 0


async def test_an_answer_that_had_begun_and_broke_off_is_told_by_its_engine(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.failing(500)
    assert (await gateway.call(chat(stream=True)))[0] == 502
    assert await gateway.grown("headworks_gateway_streams_cut_total") == 0, "nothing of it had begun"
    engine.behave = engine.one_token_then_cut
    async with gateway.post(chat(stream=True)) as answer:
        await answer.read()
    name = next(iter(configuration(engine.url)["engines"]))

    async def cut() -> float:
        return await gateway.grown(
            "headworks_gateway_streams_cut_total", pool="main", engine=name, reason="engine_error"
        )

    await gateway.until(cut, 1, "the stream to be counted as cut")


async def test_tokens_that_a_client_had_not_taken_when_it_left_came_after_the_cancel(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.flood
    body = json.dumps(chat(stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await asyncio.wait_for(engine.stuck.wait(), 30)
    writer.transport.abort()
    await ended(gateway, "cancelled")
    after = await gateway.grown("headworks_gateway_tokens_after_cancel_total", pool="main", tenant="alpha")
    assert 0 < after < await gateway.grown("headworks_gateway_cancelled_tokens_total")
    assert await gateway.grown("headworks_gateway_body_write_seconds_total", tenant="alpha") > 0.5, "it took nothing"


async def test_a_slow_sender_shows_in_the_time_to_read(gateway: RunningGateway):
    body = json.dumps(chat()).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])

    async def in_flight() -> float:
        return await gateway.metric("headworks_gateway_requests_in_flight")

    await gateway.until(in_flight, 1, "the request to begin")
    await asyncio.sleep(0.3)
    writer.write(body[10:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert await gateway.grown("headworks_gateway_body_read_seconds_total", tenant="alpha") >= 0.3


async def test_a_slow_first_token_opens_the_breaker_before_it_comes(gateway: RunningGateway, engine: ScriptedEngine):
    breaker = {"minimum_requests": 1, "timeout_permille": 1, "timeout_ms": 200, "cooldown_ms": 3_600_000}
    await gateway.publish(changed(gateway.control.content, pools__main__breaker=breaker))
    engine.behave = engine.silence
    waiting = asyncio.ensure_future(gateway.open_stream(chat(stream=True)))

    async def is_open() -> float:
        return await gateway.metric("headworks_gateway_breaker_state", engine="e0", state="open")

    await gateway.until(is_open, 1, "the breaker to open")
    assert not waiting.done()
    engine.release.set()
    async with await waiting as answer:
        assert "[DONE]" in await answer.text(), "what waits is served all the same"
