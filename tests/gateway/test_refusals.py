"""Every named reason, reached from outside."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gateway.quotas import duration, retry_after
from gateway.refusals import REASONS
from tests.gateway.fleet import (
    DONE,
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
    shared_configuration,
)
from tests.services import free_port

COMPLETIONS = "/v1/completions"
in_one_loop = pytest.mark.asyncio(loop_scope="module")

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")
second_engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("refusals"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(shared_configuration(engine.url))
    return shared


@in_one_loop
async def test_a_body_over_the_bound_is_refused_declared_or_not(engine: ScriptedEngine, tmp_path: Path):
    bounds = {
        "HEADWORKS_GATEWAY_MAX_BODY_BYTES": "2048",
        "HEADWORKS_GATEWAY_MAX_HEADER_BYTES": "2048",
        "HEADWORKS_GATEWAY_BODY_TIMEOUT_SECONDS": "2",
    }
    async with running_gateway(tmp_path, configuration(engine.url), bounds) as gateway:
        large = chat("x" * 3000)
        assert await gateway.refusal(large) == (400, "body_too_large")

        async def chunks():
            for _ in range(21):
                yield b"x" * 100
            # What is under way when a server closes makes the kernel reset the connection, answer and all.
            await asyncio.Event().wait()

        async with gateway.http.post(
            f"{gateway.url}/v1/completions", data=chunks(), headers={"Authorization": f"Bearer {KEYS['alpha']}"}
        ) as answer:
            assert (await answer.json())["error"]["code"] == "body_too_large"
        assert await gateway.refusal(chat(), headers={"X-Filler": "x" * 3000}) == (400, "headers_too_large")
        assert await _send_half_a_body(gateway) == "body_too_slow"
        assert (await gateway.call(chat()))[0] == 200


async def _send_half_a_body(gateway: RunningGateway) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\nContent-Length: 99\r\n\r\n"
    )
    writer.write(head.encode() + b"{")
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 10)
    writer.close()
    return str(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"])


@in_one_loop
async def test_a_model_is_unknown_or_not_allowed(gateway: RunningGateway):
    content = gateway.control.content
    await gateway.publish(
        changed(
            content, models={**content["models"], "other/m": content["models"][MODEL]}, tenants__beta={"models": {}}
        )
    )
    assert await gateway.refusal(chat(model="nobody/has-it")) == (404, "model_not_found")
    assert await gateway.refusal(chat(), tenant="beta") == (403, "model_not_allowed")


@in_one_loop
async def test_a_priority_class_needs_leave(gateway: RunningGateway):
    classes = {"priority_classes": {"interactive": True}, "default_priority_class": "interactive"}
    await gateway.publish(changed(gateway.control.content, tenants__alpha=classes))
    batch = {"X-Priority-Class": "batch"}
    assert await gateway.refusal(chat(), headers=batch) == (403, "priority_class_not_allowed")
    assert (await gateway.call(chat(), headers=batch, tenant="beta"))[0] == 200
    assert (await gateway.call(chat()))[0] == 200


@in_one_loop
async def test_what_can_never_fit_is_told_so(gateway: RunningGateway):
    content = gateway.control.content
    engine = {**content["engines"]["e0"], "kv_capacity_tokens": 300}
    await gateway.publish(
        changed(
            content, tenants__alpha={"tpm_limit": 380, "max_parallel_requests": 2, "n_cap": 3}, engines={"e0": engine}
        )
    )
    assert await gateway.refusal(chat(max_tokens=390)) == (400, "never_fits")
    assert await gateway.refusal(chat(max_tokens=1, n=3)) == (400, "never_fits")
    assert await gateway.refusal(chat(max_tokens=1, n=4)) == (400, "n_above_cap")
    assert await gateway.refusal(chat(max_tokens=1, best_of=4)) == (400, "n_above_cap")
    assert await gateway.refusal(chat(max_tokens=270)) == (400, "never_fits_kv")
    assert (await gateway.call(chat(max_tokens=200)))[0] == 200


@in_one_loop
async def test_a_default_output_length_never_turns_a_small_limit_into_a_permanent_refusal(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 20}))
    assert (await gateway.call(chat("hello")))[0] == 200
    assert engine.bodies[0]["max_tokens"] < 20


@in_one_loop
async def test_max_tokens_is_clamped_and_said_so(gateway: RunningGateway, engine: ScriptedEngine):
    _, _, headers = await gateway.call(chat(max_tokens=10_000))
    assert headers["x-headworks-max-tokens"] == "400;reason=clamped"
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"max_tokens_cap": 30}))
    await gateway.call(chat(max_tokens=100))
    _, _, headers = await gateway.call(chat(max_tokens=30))
    assert "x-headworks-max-tokens" not in headers
    assert [body["max_tokens"] for body in engine.bodies] == [400, 30, 30]


@in_one_loop
async def test_routes_by_prompt_length_reject_and_run_out(
    gateway: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    content = changed(
        shared_configuration(engine.url, second_engine.url, pools=()),
        pools={"short": {"model": MODEL}, "long": {"model": MODEL}},
        routes={
            "short": {"order": 1, "match": {"max_prompt_tokens": 100}, "pools": {"short": 1000}},
            "long": {"order": 2, "match": {"max_prompt_tokens": 500}, "pools": {"long": 1000}},
            "huge": {"order": 3, "match": {"max_prompt_tokens": 1000}, "reject": "split your document"},
        },
        engines__e0__pool="short",
        engines__e1__pool="long",
    )
    await gateway.publish(content)
    assert (await gateway.call(chat("x" * 300)))[0] == 200
    assert (len(engine.bodies), len(second_engine.bodies)) == (1, 0)
    assert (await gateway.call(chat("x" * 1200)))[0] == 200
    assert (len(engine.bodies), len(second_engine.bodies)) == (1, 1)
    status, document, _ = await gateway.call(chat("x" * 3000))
    assert (status, document["error"]["code"], document["error"]["message"]) == (
        400,
        "rejected_by_route",
        "split your document",
    )
    assert await gateway.refusal(chat("x" * 5000)) == (400, "no_route")


@in_one_loop
async def test_engines_that_take_no_work(gateway: RunningGateway, engine: ScriptedEngine):
    content = gateway.control.content
    await gateway.publish(changed(content, engines__e0__cordoned=True))
    assert await gateway.refusal(chat()) == (503, "no_engine")
    forced = {"subject_kind": "pool", "subject": "main", "owner": "o", "reason": "r", "expires_at_ms": 2**50}
    await gateway.publish(changed(content, overrides={"x": {**forced, "state": "open"}}))
    assert await gateway.refusal(chat()) == (503, "breaker_open")
    assert await gateway.metric("headworks_gateway_breaker_state", engine="e0", state="open") == 1
    await gateway.publish(changed(content, overrides={"x": {**forced, "state": "open", "expires_at_ms": 1}}))
    assert (await gateway.call(chat()))[0] == 200
    assert len(engine.bodies) == 1


@in_one_loop
async def test_kv_room_is_reserved_and_comes_back(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    engines = {"e0": {**gateway.control.content["engines"]["e0"], "kv_capacity_tokens": 200}}
    pool = {**gateway.control.content["pools"]["main"], "kv_admit_permille": 750, "queue_cap": 0}
    await gateway.publish(changed(gateway.control.content, engines=engines, pools={"main": pool}))
    first = asyncio.create_task(gateway.call(chat(max_tokens=100)))
    await engine.arrived.wait()
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 107
    assert await gateway.refusal(chat(max_tokens=100)) == (503, "no_kv_capacity")
    engine.release.set()
    assert (await first)[0] == 200
    assert (await gateway.call(chat(max_tokens=100)))[0] == 200
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0


@in_one_loop
async def test_an_unreachable_engine_is_named_and_its_address_is_not(gateway: RunningGateway):
    port = free_port()
    await gateway.publish(changed(gateway.control.content, engines__e0__url=f"http://127.0.0.1:{port}"))
    status, document, headers = await gateway.call(chat())
    assert (status, document["error"]["code"]) == (503, "engine_unreachable")
    assert str(port) not in json.dumps([document, headers])


@in_one_loop
@pytest.mark.parametrize(
    ("engine_status", "expected"),
    [
        (400, (400, "engine_rejected")),
        (422, (400, "engine_rejected")),
        (401, (502, "engine_error")),
        (404, (400, "api_not_served")),
        (302, (502, "engine_error")),
        (429, (503, "engine_overloaded")),
        (503, (503, "engine_overloaded")),
        (500, (502, "engine_error")),
    ],
)
async def test_an_engines_refusal_becomes_ours(
    gateway: RunningGateway, engine: ScriptedEngine, engine_status, expected
):
    engine.behave = engine.failing(engine_status)
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 1000}))
    status, document, headers = await gateway.call(chat())
    assert (status, document["error"]["code"]) == expected
    assert urlsplit(engine.url).netloc not in json.dumps([document, headers])
    assert await gateway.remaining_tokens() == 1000


@in_one_loop
async def test_answers_that_are_none_are_engine_errors(gateway: RunningGateway, engine: ScriptedEngine):
    async def nonsense(request, body):
        return web.Response(body=b"<html>")

    async def error_under_200(request, body):
        return web.json_response({"error": {"message": "no", "code": 503}})

    async def empty_stream(request, body):
        return await engine.stream(request)

    engine.behave = nonsense
    assert await gateway.refusal(chat()) == (502, "engine_error")
    engine.behave = error_under_200
    assert await gateway.refusal(chat()) == (503, "engine_overloaded")
    engine.behave = empty_stream
    assert await gateway.refusal(chat(stream=True)) == (502, "engine_error")
    engine.behave = engine.cut
    assert await gateway.refusal(chat()) == (502, "engine_error")


@in_one_loop
async def test_a_deadline_of_the_client_ends_the_request_at_the_engine_too(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.silence
    assert await gateway.refusal(chat(), headers={"X-Request-Timeout-Ms": "150"}) == (504, "deadline_exceeded")

    await gateway.until_left(engine)


@in_one_loop
async def test_the_time_for_which_an_official_client_reads_ends_a_whole_answer_and_no_stream(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.silence
    for seconds in ("0.15", "0.150000001"):
        headers = {"x-stainless-read-timeout": seconds}
        assert await gateway.refusal(chat(), headers=headers) == (504, "deadline_exceeded")
        await gateway.until_left(engine)

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return await engine.answer(request, body)

    engine.behave = slow
    async with gateway.post(chat(stream=True), headers={"x-stainless-read-timeout": "0.15"}) as answer:
        assert (await answer.read()).endswith(DONE)
    engine.behave = engine.answer
    for seconds in ("0", "soon", "-1", "1e-9", "9" * 400):
        assert (await gateway.call(chat(), headers={"x-stainless-read-timeout": seconds}))[0] == 200


@in_one_loop
async def test_without_a_configuration_it_is_alive_and_not_ready(engine: ScriptedEngine, tmp_path: Path):
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        await gateway.control.stop()
        gateway.process.stop()
        (gateway.state_dir / "last-known-good.json").unlink()
        gateway.launch()

        async def healthy() -> bool:
            return await gateway.ready_status() == 503

        await gateway.until(healthy, True, "503 from /readyz")
        status, document, headers = await gateway.call(chat())
        assert (status, document["error"]["code"], headers["x-headworks-revision"]) == (503, "not_ready", "0")
        assert headers["retry-after"] == "1"
        async with gateway.http.get(f"{gateway.url}/healthz") as answer:
            assert answer.status == 200


def test_every_reason_is_tested():
    everything = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    untested = [name for name in REASONS if f'"{name}"' not in everything]
    assert untested == []


def test_durations_are_written_as_openai_writes_them():
    written = [duration(ms) for ms in (0, 850, 1000, 1001, 59_000, 360_000, 3_905_000)]
    assert written == ["0ms", "850ms", "1s", "2s", "59s", "6m0s", "1h5m5s"]


@given(st.floats(0, 100_000))
def test_retry_after_is_never_too_early_and_at_most_a_fifth_late_but_for_whole_seconds(wait: float):
    answer = retry_after(wait)
    assert answer >= max(1, wait)
    assert answer <= max(1, math.ceil(wait), 1.2 * wait)


def test_retry_after_spreads_clients():
    assert len({retry_after(100) for _ in range(500)}) > 5
    assert {retry_after(wait) for wait in (0, 0.2, 1) for _ in range(100)} == {1}


@in_one_loop
async def test_the_metrics_page_asks_for_its_token_where_one_is_set(engine: ScriptedEngine, tmp_path: Path):
    secret = {"HEADWORKS_GATEWAY_METRICS_TOKEN": "scraper-token"}
    async with running_gateway(tmp_path, configuration(engine.url), secret) as gateway:
        await gateway.control.stop()

        async def ask(path: str, authorization: str = "") -> tuple[int, str]:
            headers = {"Authorization": authorization} if authorization else {}
            async with gateway.http.get(f"{gateway.url}{path}", headers=headers) as answer:
                return answer.status, await answer.text()

        for wrong in ("", "Bearer scraper-toke", "Basic scraper-token", f"Bearer {KEYS['alpha']}"):
            status, page = await ask("/metrics", wrong)
            assert (status, json.loads(page)["error"]["code"]) == (401, "metrics_token")
        status, page = await ask("/metrics", "Bearer scraper-token")
        assert (status, "headworks_gateway_config_revision 1.0" in page) == (200, True)

        async def told() -> bool:
            return "configuration: " in (await ask("/readyz", "Bearer scraper-token"))[1]

        await gateway.until(told, True, "what is wrong with the configuration stream")
        assert await ask("/readyz") == (200, "ready\n"), "an address is not for everyone"
