"""Choice of engine, one retry before the first byte, breakers, fallbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.fleet import (
    DONE,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
    scripted_engine,
)
from tests.services import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")


engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")
second_engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    # Many a test here needs a retry.
    environment = {"HEADWORKS_GATEWAY_RETRY_BURST": "1000"}
    async with running_gateway(tmp_path_factory.mktemp("engines"), configuration(), environment) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url))
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def pair(shared: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url, second_engine.url))
    return shared


async def test_requests_go_where_least_is_reserved(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    engine.behave, second_engine.behave = engine.silence, second_engine.silence
    first = asyncio.create_task(pair.call(chat(max_tokens=300)))
    await engine.arrived.wait()
    small = [asyncio.create_task(pair.call(chat(max_tokens=30))) for _ in range(4)]

    async def open_requests() -> tuple[int, int]:
        return engine.open_requests, second_engine.open_requests

    await pair.until(open_requests, (1, 4), "the small requests on the second engine")
    engine.release.set()
    second_engine.release.set()
    assert [(await each)[0] for each in (first, *small)] == [200] * 5


@pytest.mark.parametrize("fault", ["cut", "500", "503", "first_event"])
async def test_a_failure_before_the_first_byte_is_retried_once_elsewhere(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine, fault: str
):
    faults = {
        "cut": engine.cut,
        "500": engine.failing(500),
        "503": engine.failing(503),
        "first_event": engine.erring_stream(503),
    }
    engine.behave = faults[fault]
    async with pair.post(chat(stream=fault == "first_event")) as answer:
        assert answer.status == 200
        await answer.read()
    assert (len(engine.bodies), len(second_engine.bodies)) == (1, 1)
    assert await pair.grown("headworks_gateway_retries_total", pool="main") == 1
    second_engine.behave = second_engine.failing(500)
    assert await pair.refusal(chat(stream=fault == "first_event")) in (
        (502, "engine_error"),
        (503, "engine_overloaded"),
    )
    assert len(engine.bodies) + len(second_engine.bodies) == 4, "one retry, no more"

    async def attempts() -> list[int]:
        now = [each for each in pair.control.decisions if each["revision"] == pair.control.revision]
        return [each["stages"][-1]["numbers"]["attempts"] for each in now if each["status"] != 200]

    await pair.until(attempts, [2], "the decision of the request that was tried twice")


async def test_an_error_in_the_first_event_is_an_http_error_for_the_client(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.erring_stream(503)
    assert await gateway.refusal(chat(stream=True)) == (503, "engine_overloaded")
    engine.behave = engine.erring_stream(400)
    assert await gateway.refusal(chat(stream=True)) == (400, "engine_rejected")


async def test_a_stream_that_breaks_off_ends_in_an_error_event_and_is_not_retried(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    engine.behave = engine.one_token_then_cut
    async with pair.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert '"content": "first"' in text
    assert '"code":"engine_error"' in text
    assert "[DONE]" not in text
    assert not second_engine.bodies
    assert await pair.grown("headworks_gateway_requests_total", outcome="failed", reason="engine_error") == 1


async def test_an_answer_that_a_stopping_engine_cuts_short_is_a_failure(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    """vLLM that gets SIGTERM ends its streams in finish_reason abort, usage and [DONE]."""
    cut_short: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "abort"}]}

    async def stop(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.json_response({**cut_short, "usage": engine.usage})
        usage = event({"choices": [], "usage": engine.usage})
        return await engine.stream(request, event(delta("first")), event(cut_short) + usage, DONE)

    engine.behave = stop
    async with pair.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert '"content": "first"' in text
    assert '"code":"engine_error"' in text
    assert not second_engine.bodies
    engine.behave, second_engine.behave = stop, second_engine.answer
    statuses = [await pair.call_status(chat()) for _ in range(2)]
    assert statuses == [200, 200], "what was not yet begun is asked of the other engine"
    assert await pair.grown("headworks_gateway_requests_total", outcome="failed", reason="engine_error") == 1
    assert await pair.grown("headworks_gateway_retries_total", pool="main") == 1


@pytest.mark.parametrize("ending", ["event", "unfinished event"])
@pytest.mark.parametrize("code", [400, 500])
async def test_an_error_within_a_stream_ends_it_in_our_words(
    gateway: RunningGateway, engine: ScriptedEngine, code: int, ending: str
):
    port = urlsplit(engine.url).port

    async def err(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        said = event({"error": {"message": f"worker 127.0.0.1:{port} on 127.0.0.1 died", "code": code}})
        said = said.rstrip() if ending == "unfinished event" else said + DONE
        return await engine.stream(request, event(delta("first")), event(delta("second")) + said)

    engine.behave = err
    async with gateway.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert text.startswith((event(delta("first")) + event(delta("second"))).decode())
    assert text.count('"error"') == 1
    assert f'"code":"{"engine_rejected" if code == 400 else "engine_error"}"' in text
    assert "127.0.0.1" not in text
    assert str(port) not in text
    assert "[DONE]" not in text
    assert f"127.0.0.1:{port}" not in gateway.process.log_tail()


async def test_a_request_that_is_wrong_is_not_retried(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    engine.behave = engine.failing(400, {"error": {"message": "bad schema", "code": 400}})
    status, document, _ = await pair.call(chat())
    assert (status, document["error"]["message"]) == (400, "bad schema")
    assert not second_engine.bodies


async def test_a_breaker_opens_probes_and_closes(gateway: RunningGateway, engine: ScriptedEngine):
    breaker = {"minimum_requests": 4, "error_permille": 500, "cooldown_ms": 700, "half_open_probes": 1}
    await gateway.publish(changed(gateway.control.content, pools__main__breaker=breaker))
    engine.behave = engine.failing(500)
    for _ in range(4):
        assert await gateway.refusal(chat()) == (502, "engine_error")

    async def refusal() -> tuple[int, str]:
        return await gateway.refusal(chat())

    # At once, unless this machine took longer than the cooldown; then a probe fails first.
    await gateway.until(refusal, (503, "breaker_open"), "an open breaker")
    engine.behave = engine.answer

    async def status() -> int:
        return (await gateway.call(chat()))[0]

    await gateway.until(status, 200, "a probe after the cooldown")
    assert await gateway.metric("headworks_gateway_breaker_state", engine="e0", state="closed") == 1


async def test_a_person_can_hold_an_open_breaker_closed(gateway: RunningGateway, engine: ScriptedEngine):
    breaker = {"minimum_requests": 1, "error_permille": 1, "cooldown_ms": 3_600_000}
    content = changed(gateway.control.content, pools__main__breaker=breaker)
    await gateway.publish(content)
    engine.behave = engine.failing(500)
    await gateway.call(chat())
    assert await gateway.refusal(chat()) == (503, "breaker_open")
    engine.behave = engine.answer
    forced = {"subject_kind": "engine", "subject": "e0", "owner": "o", "reason": "r", "expires_at_ms": 2**50}
    await gateway.publish(changed(content, overrides__x={**forced, "state": "closed"}))
    assert (await gateway.call(chat()))[0] == 200
    overrides = {"x": {**forced, "state": "closed"}, "y": {**forced, "state": "open"}}
    await gateway.publish(changed(content, overrides=overrides))
    assert await gateway.refusal(chat()) == (503, "breaker_open")


async def test_the_metrics_page_tells_a_breaker_that_a_person_forced_from_one_that_opened(gateway: RunningGateway):
    async def forced() -> tuple[float, float]:
        of_engine = await gateway.metric("headworks_gateway_breaker_forced", engine="e0")
        return of_engine, await gateway.metric("headworks_gateway_pool_breaker_forced", pool="main")

    content = gateway.control.content
    override = {"state": "open", "owner": "o", "reason": "r", "expires_at_ms": 2**50}
    assert await forced() == (0, 0)
    on_engine = {**override, "subject_kind": "engine", "subject": "e0"}
    await gateway.publish(changed(content, overrides__x=on_engine))
    assert await forced() == (1, 0)
    # Who forces a pool forces each of its engines.
    await gateway.publish(changed(content, overrides={"y": {**override, "subject_kind": "pool", "subject": "main"}}))
    assert await forced() == (1, 1)
    await gateway.publish(changed(content, overrides={"x": {**on_engine, "expires_at_ms": 1}}))
    assert await forced() == (0, 0)


async def test_clients_that_give_up_early_do_not_open_a_breaker(gateway: RunningGateway, engine: ScriptedEngine):
    breaker = {"minimum_requests": 2, "error_permille": 1}
    await gateway.publish(changed(gateway.control.content, pools__main__breaker=breaker))
    engine.behave = engine.silence
    for _ in range(4):
        refusal = await gateway.refusal(chat(), headers={"X-Request-Timeout-Ms": "40"})
        assert refusal == (504, "deadline_exceeded")
    _, document, _ = await gateway.call(chat(), headers={"X-Request-Timeout-Ms": "40"})
    assert document["error"]["type"] == "timeout_error"
    assert "X-Request-Timeout-Ms" in document["error"]["message"]
    engine.release.set()
    assert (await gateway.call(chat()))[0] == 200


async def test_a_fallback_pool_takes_what_the_first_cannot(
    pair: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    content = changed(
        pair.control.content,
        pools={"main": {"model": MODEL}, "spare": {"model": MODEL}},
        engines__e1__pool="spare",
        engines__e0__cordoned=True,
        routes__all__fallbacks={"spare": {"order": 1}},
    )
    await pair.publish(content)
    assert (await pair.call(chat()))[0] == 200
    assert (len(engine.bodies), len(second_engine.bodies)) == (0, 1)
    labels = {"pool": "spare", "outcome": "ok"}
    assert await pair.grown("headworks_gateway_requests_total", **labels) == 1


FEW_RETRIES = {"HEADWORKS_GATEWAY_RETRY_BURST": "2", "HEADWORKS_GATEWAY_RETRY_BUDGET_PERMILLE": "0"}
NO_BREAKER = {"minimum_requests": 1000}


async def test_retries_stay_inside_their_budget(engine: ScriptedEngine, second_engine: ScriptedEngine, tmp_path: Path):
    second_engine.behave = second_engine.failing(500)
    content = changed(configuration(second_engine.url, engine.url), pools__main__breaker=NO_BREAKER)
    async with running_gateway(tmp_path, content, FEW_RETRIES) as gateway:
        statuses = [await gateway.call_status(chat()) for _ in range(12)]
    assert statuses.count(200) == len(engine.bodies) < 12, "one that failed was asked first, and nobody else after it"


async def test_what_reached_no_engine_costs_the_budget_nothing(engine: ScriptedEngine, tmp_path: Path):
    dead = f"http://127.0.0.1:{free_port()}"
    content = changed(configuration(dead, engine.url), pools__main__breaker=NO_BREAKER)
    async with running_gateway(tmp_path, content, FEW_RETRIES) as gateway:
        statuses = [await gateway.call_status(chat()) for _ in range(12)]
        assert await gateway.grown("headworks_gateway_retries_total", pool="main") > 2
    assert statuses == [200] * 12
