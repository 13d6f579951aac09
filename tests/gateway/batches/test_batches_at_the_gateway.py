"""What a gateway does of batches by itself: whose calls it passes on, and how it runs lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.batches.control import BatchControl, until
from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    running_gateway,
    scripted_engine,
    shared_configuration,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")
JSON = {"Content-Type": "application/json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    control = BatchControl({"kind": "gateway", "schema": 1})
    quick = {"HEADWORKS_GATEWAY_BATCH_POLL_SECONDS": "0.05"}
    folder = tmp_path_factory.mktemp("gateway")
    async with running_gateway(folder, control.content, quick, control=control) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(process: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    control_of(process).begin_anew()
    await process.begin_anew(shared_configuration(engine.url))
    return process


def control_of(gateway: RunningGateway) -> BatchControl:
    assert isinstance(gateway.control, BatchControl)
    return gateway.control


async def ask(
    gateway: RunningGateway, method: str, path: str, body: Any = None, tenant: str = "alpha", **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    own = {"Authorization": f"Bearer {KEYS[tenant]}", **headers}
    async with gateway.http.request(method, gateway.url + path, data=body, headers=own) as answer:
        read = await answer.read()
        told = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, json.loads(read), told


def form(content: bytes = b"{}\n") -> aiohttp.FormData:
    made = aiohttp.FormData({"purpose": "batch"})
    made.add_field("file", content, filename="in.jsonl")
    return made


# Calls of tenants


async def test_calls_are_passed_on_as_the_keys_tenant(gateway: RunningGateway) -> None:
    control = control_of(gateway)
    assert (await ask(gateway, "POST", "/v1/files", form(b"y" * 300_000)))[0] == 200
    assert (await ask(gateway, "GET", "/v1/files?limit=2&purpose=batch", tenant="beta"))[0] == 200
    assert (await ask(gateway, "DELETE", "/v1/files/file-1"))[0] == 200
    assert (await ask(gateway, "POST", "/v1/batches", b'{"a": 1}', **JSON))[0] == 200
    assert (await ask(gateway, "GET", "/v1/batches/batch_1"))[0] == 200
    assert (await ask(gateway, "POST", "/v1/batches/batch_1/cancel"))[0] == 200
    upload, *rest = control.calls
    assert upload[:3] == ("alpha", "POST", "/files")
    assert upload[3].count(b"y") >= 300_000
    assert rest == [
        ("beta", "GET", "/files?limit=2&purpose=batch", b""),
        ("alpha", "POST", "/files/file-1/delete", b"{}"),
        ("alpha", "POST", "/batches", b'{"a": 1}'),
        ("alpha", "GET", "/batches/batch_1", b""),
        ("alpha", "POST", "/batches/batch_1/cancel", b"{}"),
    ]


async def test_contents_come_whole_however_slowly(gateway: RunningGateway) -> None:
    async def fetch() -> tuple[int, int]:
        headers = {"Authorization": f"Bearer {KEYS['alpha']}"}
        async with gateway.http.get(f"{gateway.url}/v1/files/file-1/content", headers=headers) as answer:
            assert answer.headers["x-request-id"]
            return answer.status, len(await answer.read())

    assert await asyncio.gather(*(fetch() for _ in range(30))) == [(200, 200_000)] * 30


@pytest.mark.parametrize(
    ("status", "code", "told", "waits"),
    [
        (404, "file_not_found", 404, False),
        (404, "batch_not_found", 404, False),
        (400, "bad_batch", 400, False),
        (413, "too_large", 400, False),
        (409, "file_in_use", 409, True),
        (409, "batch_ended", 409, True),
        (429, "batch_files_full", 429, True),
        (429, "too_many_batches", 429, True),
        (422, "invalid", 400, False),
        (500, "internal", 503, False),
        (401, "unauthenticated", 503, False),
        (503, "unavailable", 503, False),
    ],
)
async def test_what_the_control_plane_refuses_is_refused_by_name(
    gateway: RunningGateway, status: int, code: str, told: int, waits: bool
) -> None:
    control_of(gateway).refuse = (status, code)
    answered, body, headers = await ask(gateway, "GET", "/v1/files")
    names = {"too_large": "body_too_large", "invalid": "bad_batch"}
    wanted = names.get(code, code) if told != 503 else "batches_unavailable"
    assert (answered, body["error"]["code"]) == (told, wanted)
    # Official clients would come again by themselves, where only a person can help.
    assert (headers.get("x-should-retry") == "false") == waits
    if told != 503:
        assert f"because of {code}" in body["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("PUT", "/v1/files", (405, "method_not_allowed")),
        ("GET", "/v1/files/a/b", (404, "unknown_path")),
        ("GET", "/v1/filesystem", (404, "unknown_path")),
        ("GET", "/v1/batches/" + "x" * 65, (404, "unknown_path")),
        ("POST", "/v1/files", (400, "bad_upload")),
        ("GET", "/v1/files?after=" + "x" * 2_000, (400, "bad_batch")),
    ],
)
async def test_what_is_no_call_goes_no_further(
    gateway: RunningGateway, method: str, path: str, wanted: tuple[int, str]
) -> None:
    status, body, _ = await ask(gateway, method, path)
    assert (status, body["error"]["code"]) == wanted
    assert control_of(gateway).calls == []


async def test_an_upload_whose_client_leaves_is_given_up(gateway: RunningGateway) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    kind = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n"
    writer.write((head + kind + "--b\r\n").encode())
    await writer.drain()
    writer.close()
    assert (await ask(gateway, "GET", "/v1/batches"))[0] == 200
    assert [call[2] for call in control_of(gateway).calls] == ["/batches"]


async def test_without_the_class_batches_and_lines_are_refused_by_name(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(changed(shared_configuration(engine.url), priority_classes={"interactive": {"rank": 0}}))
    status, body, _ = await ask(gateway, "POST", "/v1/batches", b"{}", **JSON)
    assert (status, body["error"]["code"]) == (403, "no_batch_class")
    control = control_of(gateway)
    (line,) = control.add()
    await until(lambda: line in control.results, "the line to fail")
    assert control.results[line].outcome == "failed"
    assert json.loads(bytes(control.results[line].body))["error"]["code"] == "no_batch_class"


# Lines


async def test_a_line_runs_as_a_request_of_its_tenant_in_the_class(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    control = control_of(gateway)
    (line,) = control.add(max_tokens=5)
    await until(lambda: line in control.results, "the line to be done")
    result = control.results[line]
    assert (result.outcome, result.status) == ("done", 200)
    assert json.loads(bytes(result.body))["usage"]["completion_tokens"] == 2
    assert engine.bodies[-1]["max_tokens"] == 5
    counted = {"tenant": "alpha", "priority_class": "batch", "outcome": "ok"}
    assert await gateway.grown("headworks_gateway_requests_total", **counted) == 1
    used = {"tenant": "alpha", "priority_class": "batch"}
    assert await gateway.grown("headworks_gateway_prompt_tokens_total", **used) == 7
    assert await gateway.grown("headworks_gateway_generation_tokens_total", **used) == 2


@pytest.mark.parametrize(
    ("fields", "model", "code"),
    [({"max_tokens": "x"}, MODEL, "bad_field"), ({}, "unheard/of", "model_not_found")],
)
async def test_a_line_that_cannot_be_served_fails_with_the_answer(
    gateway: RunningGateway, fields: dict[str, Any], model: str, code: str
) -> None:
    control = control_of(gateway)
    (line,) = control.add(model=model, **fields)
    await until(lambda: line in control.results, "the line to fail")
    assert control.results[line].outcome == "failed"
    assert json.loads(bytes(control.results[line].body))["error"]["code"] == code


async def test_a_tenant_whose_share_is_used_up_rests_and_the_others_go_on(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(changed(shared_configuration(engine.url), tenants__beta={"rpm_limit": 1}))
    assert await gateway.call_status(chat(), "beta") == 200
    control = control_of(gateway)
    (line,) = control.add(tenant="beta")
    await until(lambda: line in control.results, "the line to be refused")
    assert control.results[line].outcome == "again"
    assert control.results[line].after_ms >= 1_000
    others = control.add(3, tenant="beta") + control.add(1)
    await until(lambda: others[-1] in control.results, "the line of the other tenant")
    assert not set(others[:-1]) & set(control.results)
    assert control.asked[-1].resting == ["beta"]


async def test_no_line_starts_while_an_interactive_request_waits(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    content = changed(shared_configuration(engine.url), pools__main__max_concurrency=1, pools__main__queue_cap=5)
    await gateway.publish(content)
    engine.behave = engine.silence
    headers = {"X-Priority-Class": "interactive"}
    asking = [asyncio.create_task(gateway.call(chat(), headers=headers)) for _ in range(2)]

    async def waiting() -> float:
        return await gateway.metric("headworks_gateway_queue_length", pool="main")

    await gateway.until(waiting, 1.0, "one to wait")
    control = control_of(gateway)
    (line,) = control.add()
    looks = len(control.asked)
    await until(lambda: len(control.asked) > looks + 5, "some looks for lines")
    assert not [want for asked in control.asked[looks:] for want in asked.wants]
    assert len(engine.bodies) == 1
    engine.release.set()
    for task in asking:
        assert (await task)[0] == 200
    await until(lambda: line in control.results, "the line to be done")
    assert control.results[line].outcome == "done"


async def test_lines_stay_under_the_headroom_of_the_kv_cache(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    content = shared_configuration(engine.url)
    await gateway.publish(changed(content, engines__e0__kv_capacity_tokens=1_000))
    engine.behave = engine.silence
    control = control_of(gateway)
    lines = control.add(12, max_tokens=100)
    # Each holds its prompt and 100 tokens: with the eighth the share of 85 % is passed.
    await until(lambda: engine.open_requests >= 7, "lines to run")
    reserved = await gateway.metric("headworks_gateway_kv_reserved_tokens")
    looks = len(control.asked)
    await until(lambda: len(control.asked) > looks + 5, "some looks for lines")
    assert engine.open_requests <= 9
    assert reserved <= 1_000
    # An interactive request finds room.
    engine.behave = engine.answer
    assert await gateway.call_status(chat(max_tokens=20)) == 200
    engine.release.set()
    await until(lambda: set(lines) <= set(control.results), "all lines to be done")


async def test_leases_are_renewed_and_what_is_lost_before_it_began_is_dropped(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(changed(shared_configuration(engine.url), pools__main__max_concurrency=2))
    engine.behave = engine.silence
    control = control_of(gateway)
    control.add(8)
    await until(lambda: engine.open_requests == 1, "one line to run")
    assert await gateway.metric("headworks_gateway_batch_lines_running", pool="main") == 1
    assert await gateway.metric("headworks_gateway_batch_lines_waiting", pool="main") >= 1
    assert await gateway.metric("headworks_gateway_batch_in_flight_limit", pool="main") >= 1
    await until(lambda: len(set(control.renewed)) >= 2, "leases to be renewed")
    running = int(engine.bodies[0]["messages"][0]["content"].removeprefix("line "))
    control.lost = set(control.renewed)
    dropped = control.lost - {running}
    await until(lambda: running in control.renewed[-3:] and not dropped & set(control.renewed[-3:]), "the others to go")
    control.lost = set()
    engine.release.set()
    # What had begun is let end, and told: it may be the first.
    await until(lambda: running in control.results, "the running line to be done")
    assert control.results[running].outcome == "done"
    assert not dropped & set(control.results)


async def test_what_came_of_lines_is_kept_while_nobody_takes_it(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    control = control_of(gateway)
    control.takes_results = False
    lines = control.add(3)
    await until(lambda: len(engine.bodies) == 3, "the lines to run")
    assert not set(lines) & set(control.results)
    control.takes_results = True
    await until(lambda: set(lines) <= set(control.results), "the results")
    assert len(engine.bodies) == 3


async def test_an_engine_that_fails_is_tried_again_later(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    engine.behave = engine.failing(500)
    control = control_of(gateway)
    (line,) = control.add()
    await until(lambda: line in control.results, "the line to come back")
    assert (control.results[line].outcome, control.results[line].after_ms) == ("again", 1_000)


async def test_a_drain_gives_back_what_waits_and_lets_end_what_runs(
    tmp_path_factory: pytest.TempPathFactory, engine: ScriptedEngine
) -> None:
    control = BatchControl(changed(shared_configuration(engine.url), pools__main__max_concurrency=2))
    engine.behave = engine.silence
    folder = tmp_path_factory.mktemp("drained")
    quick = {"HEADWORKS_GATEWAY_BATCH_POLL_SECONDS": "0.05"}
    async with running_gateway(folder, control.content, quick, control=control) as draining:
        lines = control.add(4)
        await until(lambda: engine.open_requests == 1 and not control.lines, "the lines to be taken")
        stopping = asyncio.create_task(asyncio.to_thread(draining.process.stop, 20))
        await until(lambda: len(control.results) == 3, "what waits to be given back")
        assert {result.outcome for result in control.results.values()} == {"again"}
        engine.release.set()
        assert await stopping == 0
    assert [control.results[line].outcome for line in lines].count("done") == 1


async def test_an_answer_that_is_no_json_fails_the_line(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    async def rubbish(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=b"{} and more", content_type="application/json")

    engine.behave = rubbish
    control = control_of(gateway)
    (line,) = control.add()
    await until(lambda: line in control.results, "the line to end")
    assert control.results[line].outcome in ("failed", "again")
