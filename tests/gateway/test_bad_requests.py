"""Requests that are wrong in themselves, each refused by name. None of them changes the gateway, so all share one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.fleet import KEYS, MODEL, RunningGateway, ScriptedEngine, chat, running_gateway, shared_configuration

COMPLETIONS = "/v1/completions"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def busy() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(busy: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("shared"), shared_configuration(busy.url)) as gateway:
        yield gateway


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
async def test_it_refuses_a_key_that_is_not_good(shared: RunningGateway, authorization, expected):
    headers = {"Authorization": authorization} if authorization else {}
    assert await shared.refusal(chat(), tenant=None, headers=headers) == expected


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
async def test_it_refuses_a_bad_body_by_name(shared: RunningGateway, busy: ScriptedEngine, body, expected, param):
    served = len(busy.bodies)
    status, document, _ = await shared.call(body)
    assert (status, document["error"]["code"], document["error"]["param"]) == (400, expected, param)
    assert (await shared.call(chat()))[0] == 200, "the gateway lives on"
    assert len(busy.bodies) == served + 1


@pytest.mark.parametrize("prompt", [[], {}, None, 5, [-1], [1, "a"], [[]], [["a"]], [True]])
async def test_it_refuses_a_prompt_that_is_none(shared: RunningGateway, prompt):
    assert await shared.refusal({"model": MODEL, "prompt": prompt}, path=COMPLETIONS) == (400, "bad_field")


async def test_numbers_outside_json_are_refused(shared: RunningGateway):
    for number in (b"NaN", b"Infinity", b"1e999", b"01"):
        body = b'{"model": "%s", "prompt": "x", "max_tokens": %s}' % (MODEL.encode(), number)
        assert (await shared.refusal(body, path=COMPLETIONS))[0] == 400


async def test_paths_and_methods_that_are_not_served(shared: RunningGateway):
    assert await shared.refusal(chat(), path="/v1/nothing") == (404, "unknown_path")
    assert await shared.refusal(chat(), path="/v1/models") == (405, "method_not_allowed")
    async with shared.http.get(f"{shared.url}/v1/completions") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == "POST"


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
async def test_it_refuses_a_header_without_a_usable_value(shared: RunningGateway, headers):
    assert await shared.refusal(chat(), headers=headers) == (400, "bad_header")


async def test_garbage_that_is_no_http_leaves_the_gateway_alive(shared: RunningGateway):
    for garbage in (os.urandom(4096), b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", shared.port), timeout=5) as connection:
            connection.sendall(garbage)
    assert (await shared.call(chat()))[0] == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/feedback"])
async def test_a_body_that_is_no_http_is_the_clients_fault(shared: RunningGateway, path: str):
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    head = f"POST {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\nnot a length\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 15)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"code":"bad_json"' in answer
    writer.close()
