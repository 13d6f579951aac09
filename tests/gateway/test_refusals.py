"""Every named reason, reached from outside."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.quotas import duration, retry_after
from gateway.refusals import REASONS, docs_table
from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
)
from tests.services import free_port

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (None, (401, "missing_key")),
        ("Basic abc", (401, "missing_key")),
        ("Bearer ", (401, "missing_key")),
        ("Bearer hw-nobody", (401, "unknown_key")),
        (f"Bearer {KEYS['blocked']}", (401, "key_blocked")),
        (f"Bearer {KEYS['stale']}", (401, "key_expired")),
        (f"Bearer {KEYS['parked']}", (403, "tenant_blocked")),
    ],
)
async def test_it_refuses_a_key_that_is_not_good(gateway: RunningGateway, authorization, expected):
    headers = {"Authorization": authorization} if authorization else {}
    assert await gateway.refusal(chat(), tenant=None, headers=headers) == expected


@pytest.mark.parametrize(
    ("body", "expected", "param"),
    [
        (b"", "bad_json", None),
        (b"{", "bad_json", None),
        (b"[]", "bad_json", None),
        (b'{"model": "\xff"}', "bad_json", None),
        (b'{"model": "m", "messages": [], "user": "\xff"}', "bad_json", None),
        (b"[" * 200_000, "bad_json", None),
        (b'{"model": "m", "messages": ' + b"[" * 200_000, "bad_json", None),
        ({"messages": [{"role": "user", "content": "x"}]}, "bad_field", "model"),
        ({"model": 7, "messages": [{"role": "user", "content": "x"}]}, "bad_field", "model"),
        ({"model": MODEL}, "bad_field", "messages"),
        (chat(messages=[]), "bad_field", "messages"),
        (chat(messages=[{"content": "x"}]), "bad_field", "messages[0]"),
        (chat(messages=[{"role": "user", "content": 5}]), "bad_field", "messages[0].content"),
        (chat(max_tokens=0), "bad_field", "max_tokens"),
        (chat(max_tokens=-1), "bad_field", "max_tokens"),
        (chat(max_tokens="9"), "bad_field", "max_tokens"),
        (chat(max_tokens=1.5), "bad_field", "max_tokens"),
        (chat(max_tokens=10**30), "bad_field", "max_tokens"),
        (chat(max_completion_tokens=-1), "bad_field", "max_completion_tokens"),
        (chat(n=0), "bad_field", "n"),
        (chat(n=10**9), "bad_field", "n"),
        (chat(stream="yes"), "bad_field", "stream"),
        (chat(stream_options=[]), "bad_field", "stream_options"),
        (chat(max_tokens=5, max_completion_tokens=6), "conflicting_max_tokens", "max_completion_tokens"),
    ],
)
async def test_it_refuses_a_bad_body_by_name(gateway: RunningGateway, engine: ScriptedEngine, body, expected, param):
    status, document, _ = await gateway.call(body)
    assert (status, document["error"]["code"], document["error"]["param"]) == (400, expected, param)
    assert (await gateway.call(chat()))[0] == 200, "the gateway lives on"
    assert len(engine.bodies) == 1


@pytest.mark.parametrize("prompt", [[], {}, None, 5, [-1], [1, "a"], [[]], [["a"]], [True]])
async def test_it_refuses_a_prompt_that_is_none(gateway: RunningGateway, prompt):
    assert await gateway.refusal({"model": MODEL, "prompt": prompt}, path=COMPLETIONS) == (400, "bad_field")


async def test_numbers_outside_json_are_refused(gateway: RunningGateway):
    for number in (b"NaN", b"Infinity", b"1e999", b"01"):
        body = b'{"model": "%s", "prompt": "x", "max_tokens": %s}' % (MODEL.encode(), number)
        assert (await gateway.refusal(body, path=COMPLETIONS))[0] == 400


async def test_paths_and_methods_that_are_not_served(gateway: RunningGateway):
    assert await gateway.refusal(chat(), path="/v1/nothing") == (404, "unknown_path")
    assert await gateway.refusal(chat(), path="/v1/models") == (405, "method_not_allowed")
    async with gateway.http.get(f"{gateway.url}/v1/completions") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Request-Id": "a" * 129},
        {"X-Request-Id": "with space"},
        {"X-Priority-Class": "no-such-class"},
        {"X-Request-Timeout-Ms": "-5"},
        {"X-Request-Timeout-Ms": "0"},
        {"X-Request-Timeout-Ms": "soon"},
        {"X-Request-Timeout-Ms": "9" * 40},
    ],
)
async def test_it_refuses_a_header_without_a_usable_value(gateway: RunningGateway, headers):
    assert await gateway.refusal(chat(), headers=headers) == (400, "bad_header")


async def test_a_body_over_the_bound_is_refused_declared_or_not(engine: ScriptedEngine, tmp_path: Path):
    bounds = {
        "HEADWORKS_GATEWAY_MAX_BODY_BYTES": "2048",
        "HEADWORKS_GATEWAY_MAX_HEADER_BYTES": "2048",
        "HEADWORKS_GATEWAY_BODY_TIMEOUT_SECONDS": "0.3",
    }
    async with running_gateway(tmp_path, configuration(engine.url), bounds) as gateway:
        large = chat("x" * 3000)
        assert await gateway.refusal(large) == (400, "body_too_large")

        async def chunks():
            for _ in range(30):
                yield b"x" * 100

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


async def test_a_model_is_unknown_or_not_allowed(gateway: RunningGateway):
    content = gateway.control.content
    await gateway.publish(
        changed(
            content, models={**content["models"], "other/m": content["models"][MODEL]}, tenants__beta={"models": {}}
        )
    )
    assert await gateway.refusal(chat(model="nobody/has-it")) == (404, "model_not_found")
    assert await gateway.refusal(chat(), tenant="beta") == (403, "model_not_allowed")


async def test_a_priority_class_needs_leave(gateway: RunningGateway):
    classes = {"priority_classes": {"interactive": True}, "default_priority_class": "interactive"}
    await gateway.publish(changed(gateway.control.content, tenants__alpha=classes))
    batch = {"X-Priority-Class": "batch"}
    assert await gateway.refusal(chat(), headers=batch) == (403, "priority_class_not_allowed")
    assert (await gateway.call(chat(), headers=batch, tenant="beta"))[0] == 200
    assert (await gateway.call(chat()))[0] == 200


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


async def test_a_default_output_length_never_turns_a_small_limit_into_a_permanent_refusal(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 20}))
    assert (await gateway.call(chat("hello")))[0] == 200
    assert engine.bodies[0]["max_tokens"] < 20


async def test_max_tokens_is_clamped_and_said_so(gateway: RunningGateway, engine: ScriptedEngine):
    _, _, headers = await gateway.call(chat(max_tokens=10_000))
    assert headers["x-headworks-max-tokens"] == "400;reason=clamped"
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"max_tokens_cap": 30}))
    await gateway.call(chat(max_tokens=100))
    _, _, headers = await gateway.call(chat(max_tokens=30))
    assert "x-headworks-max-tokens" not in headers
    assert [body["max_tokens"] for body in engine.bodies] == [400, 30, 30]


async def test_routes_by_prompt_length_reject_and_run_out(
    gateway: RunningGateway, engine: ScriptedEngine, second_engine: ScriptedEngine
):
    content = changed(
        configuration(engine.url, second_engine.url),
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


async def test_engines_that_take_no_work(gateway: RunningGateway, engine: ScriptedEngine):
    content = gateway.control.content
    await gateway.publish(changed(content, engines__e0__cordoned=True))
    assert await gateway.refusal(chat()) == (503, "no_engine")
    forced = {"subject_kind": "pool", "subject": "main", "owner": "o", "reason": "r", "expires_at_ms": 2**50}
    await gateway.publish(changed(content, overrides__x={**forced, "state": "open"}))
    assert await gateway.refusal(chat()) == (503, "breaker_open")
    assert await gateway.metric("headworks_gateway_breaker_state", engine="e0", state="open") == 1
    await gateway.publish(changed(content, overrides__x={**forced, "state": "open", "expires_at_ms": 1}))
    assert (await gateway.call(chat()))[0] == 200
    assert len(engine.bodies) == 1


async def test_kv_room_is_reserved_and_comes_back(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.silence
    engines = {"e0": {**gateway.control.content["engines"]["e0"], "kv_capacity_tokens": 200}}
    await gateway.publish(changed(gateway.control.content, engines=engines, pools__main__kv_admit_permille=750))
    first = asyncio.create_task(gateway.call(chat(max_tokens=100)))
    await engine.arrived.wait()
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 107
    assert await gateway.refusal(chat(max_tokens=100)) == (503, "no_kv_capacity")
    engine.release.set()
    assert (await first)[0] == 200
    assert (await gateway.call(chat(max_tokens=100)))[0] == 200
    assert await gateway.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0


async def test_an_unreachable_engine_is_named_and_its_address_is_not(gateway: RunningGateway):
    port = free_port()
    await gateway.publish(changed(gateway.control.content, engines__e0__url=f"http://127.0.0.1:{port}"))
    status, document, headers = await gateway.call(chat())
    assert (status, document["error"]["code"]) == (503, "engine_unreachable")
    assert str(port) not in json.dumps([document, headers])


@pytest.mark.parametrize(
    ("engine_status", "expected"),
    [
        (400, (400, "engine_rejected")),
        (422, (400, "engine_rejected")),
        (401, (502, "engine_error")),
        (404, (502, "engine_error")),
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


async def test_answers_that_are_none_are_engine_errors(gateway: RunningGateway, engine: ScriptedEngine):
    from aiohttp import web

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


async def test_a_deadline_of_the_client_ends_the_request_at_the_engine_too(
    gateway: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.silence
    assert await gateway.refusal(chat(), headers={"X-Request-Timeout-Ms": "150"}) == (504, "deadline_exceeded")

    async def open_requests() -> int:
        return engine.open_requests

    await gateway.until(open_requests, 0, "the engine to be left")


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


def test_every_reason_is_documented_and_tested():
    everything = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    untested = [name for name in REASONS if f'"{name}"' not in everything]
    assert untested == []
    assert all(f"`{name}`" in docs_table() for name in REASONS)


def test_durations_are_written_as_openai_writes_them():
    written = [duration(ms) for ms in (0, 850, 1000, 1001, 59_000, 360_000, 3_905_000)]
    assert written == ["0ms", "850ms", "1s", "2s", "59s", "6m0s", "1h5m5s"]


def test_retry_after_is_moved_up_by_at_most_a_fifth():
    assert {retry_after(0), retry_after(0.2), retry_after(1)} == {1}
    answers = {retry_after(100) for _ in range(500)}
    assert min(answers) >= 100
    assert max(answers) <= 120
    assert len(answers) > 5


async def test_garbage_that_is_no_http_leaves_the_gateway_alive(gateway: RunningGateway):
    for garbage in (os.urandom(4096), b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as connection:
            connection.sendall(garbage)
    assert (await gateway.call(chat()))[0] == 200
