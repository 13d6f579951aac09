"""Requests that are wrong, at every API: each is refused by name in the API's shape, and nothing is held then."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.settings import BODY_TIMEOUT_SECONDS, MAX_HEADER_BYTES
from tests.gateway.fleet import KEYS, MODEL, RunningGateway, changed, running_gateway, shared_configuration
from tests.gateway.protocols import BODIES, PATHS, SpeakingEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")
APIS = pytest.mark.parametrize("api", PATHS)
MEBIBYTE = 2**20
TEXT_FIELD = {
    "chat": "messages",
    "completions": "prompt",
    "responses": "input",
    "embeddings": "input",
    "rerank": "documents",
    "messages": "messages",
}
# An item of responses may be of many kinds: what it must have is for the engine to say.
NO_TEXTS: dict[str, list[Any]] = {api: [None, 7, {}, [], [None], True, [[["a"]]]] for api in TEXT_FIELD}
for each in ("chat", "completions", "embeddings", "rerank", "messages"):
    NO_TEXTS[each].append([{}])
OUTPUT_FIELD = {"responses": "max_output_tokens"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[SpeakingEngine]:
    engine = SpeakingEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(engine: SpeakingEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    content = changed(
        shared_configuration(engine.url), tenants__alpha={"tpm_limit": 600_000, "max_parallel_requests": 1}
    )
    folder = tmp_path_factory.mktemp("everywhere")
    async with running_gateway(folder, content, {BODY_TIMEOUT_SECONDS.name: "0.5"}) as gateway:
        yield gateway


async def nothing_is_held(gateway: RunningGateway, api: str) -> None:
    """One more request is served, which with one parallel request at most needs all leases to be back."""

    async def held() -> float:
        names = ("requests_in_flight", "kv_reserved_tokens", "engine_requests")
        return sum([await gateway.metric(f"headworks_gateway_{name}") for name in names])

    await gateway.until(held, 0, "everything to be given back")
    status, document, _ = await gateway.call(BODIES[api], path=PATHS[api])
    assert status == 200, document


def with_each(good: dict[str, Any], field: str, *values: Any) -> list[dict[str, Any]]:
    return [{**good, field: value} for value in values]


def wrong_bodies(api: str) -> list[bytes | dict[str, Any]]:
    good, text, output = BODIES[api], TEXT_FIELD[api], OUTPUT_FIELD.get(api, "max_tokens")
    raw = json.dumps(good).encode()
    bodies: list[bytes | dict[str, Any]] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        raw[:-1],
        raw + raw,
        b"\xef\xbb\xbf" + raw,
        raw.decode().encode("utf-16"),
        raw[:-1] + b', "user": "\xff"}',
        raw[:-1] + b', "user": "\\ud800"}',
        raw[:-1] + b', "user": NaN}',
        raw[:-1] + b', "user": ' + b"[" * 500 + b"]" * 500 + b"}",
        raw[:-1] + b', "user": ' + b'{"a":' * 200_000 + b"}",
        {name: value for name, value in good.items() if name != "model"},
        {name: value for name, value in good.items() if name != text},
        *with_each(good, "model", None, 7, "", "m" * 201, ["m"]),
        *with_each(good, text, *NO_TEXTS[api]),
    ]
    if api not in ("embeddings", "rerank"):
        bodies += with_each(good, output, 0, -1, 1.5, "9", 2**31, 10**30, [], True)
        bodies += with_each(good, "stream", "yes", 1, [])
    if api in ("chat", "completions"):
        for field in ("n", "best_of"):
            bodies += with_each(good, field, 0, -1, 10_001, "2", 1.5)
        bodies += with_each(good, "stream_options", [], "x", 1)
    return bodies


@APIS
async def test_a_wrong_body_is_refused_by_name_and_reaches_no_engine(shared, engine, api):
    served, left = len(engine.bodies), await shared.remaining_tokens()
    for body in wrong_bodies(api):
        status, document, headers = await shared.call(body, path=PATHS[api])
        shown = body[:80] if isinstance(body, bytes) else body
        assert (status, document["error"]["code"] in ("bad_json", "bad_field")) == (400, True), (shown, document)
        assert (document.get("type") == "error") == (api == "messages")
        assert headers["x-request-id"]
    assert len(engine.bodies) == served
    assert await shared.remaining_tokens() >= left
    await nothing_is_held(shared, api)


@APIS
async def test_what_is_read_of_a_field_given_twice_is_what_the_engine_reads(shared, engine, api):
    once = json.dumps(BODIES[api])
    body = f'{{"model": "no/such-model", "stream": true, {once[1:-1]}, "stream": false, "x": 1, "x": 2}}'
    status, _, _ = await shared.call(body.encode(), path=PATHS[api])
    assert status == 200
    assert (engine.bodies[-1]["model"], engine.bodies[-1]["x"], engine.bodies[-1]["stream"]) == ("served-8b", 2, False)
    body = f'{{{once[1:-1]}, "mod\\u0065l": "no/such-model"}}'
    status, document, _ = await shared.call(body.encode(), path=PATHS[api])
    assert (status, document["error"]["code"]) == (404, "model_not_found")


def resident_bytes(gateway: RunningGateway) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{gateway.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def raw_answer(gateway: RunningGateway, *parts: bytes, wait: bool = True) -> bytes:
    """What comes back for these bytes, until the gateway closes; a broken pipe is a close as well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    try:
        return await asyncio.wait_for(reader.read(), 10) if wait else b""
    except ConnectionError:
        return b""
    finally:
        writer.close()


def head(api: str, *lines: str) -> bytes:
    own = (f"POST {PATHS[api]} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {KEYS['alpha']}")
    return "\r\n".join((*own, "Content-Type: application/json", *lines, "", "")).encode()


@APIS
async def test_a_body_of_50_mb_is_refused_without_being_kept(shared, api):
    before, size = resident_bytes(shared), 50 * MEBIBYTE
    declared = await raw_answer(shared, head(api, f"Content-Length: {size}"))
    assert b"body_too_large" in declared
    piece = b"%x\r\n%b\r\n" % (MEBIBYTE, b" " * MEBIBYTE)
    chunked = await raw_answer(shared, head(api, "Transfer-Encoding: chunked"), *[piece] * 50, b"0\r\n\r\n")
    # It is answered while the client still sends, who may see the close before the answer.
    assert chunked == b"" or b"body_too_large" in chunked
    assert resident_bytes(shared) - before < size
    await nothing_is_held(shared, api)


@APIS
async def test_a_body_that_trickles_in_is_refused(shared, api):
    answer = await raw_answer(shared, head(api, "Content-Length: 100"), b'{"model"')
    assert b"body_too_slow" in answer
    await nothing_is_held(shared, api)


async def test_a_client_that_sends_less_than_it_said_and_leaves_takes_nothing_along(shared, engine):
    served = len(engine.bodies)
    body = json.dumps(BODIES["chat"]).encode()
    await raw_answer(shared, head("chat", f"Content-Length: {len(body) + 10}"), body, wait=False)
    await nothing_is_held(shared, "chat")
    assert len(engine.bodies) == served + 1


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: -1",),
        ("Content-Length: 1e3",),
        ("Content-Length: 5, 6",),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 18446744073709551616",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: chunked, identity",),
        ("X-Nul: a\0b",),
    ],
)
async def test_a_length_that_cannot_be_is_refused_or_the_connection_closed(shared, engine, lines):
    served = len(engine.bodies)
    answer = await raw_answer(shared, head("chat", *lines), json.dumps(BODIES["chat"]).encode() + b"\r\n\r\n")
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert len(engine.bodies) == served
    await nothing_is_held(shared, "chat")


async def test_a_second_request_in_what_was_said_to_be_a_body_is_no_request(shared, engine):
    """Length and chunks at once, by which proxies are made to disagree where a request ends (RFC 9112, 6.3)."""
    served = len(engine.bodies)
    hidden = head("completions", "Content-Length: 2") + b"{}"
    answer = await raw_answer(
        shared, head("chat", "Content-Length: 4", "Transfer-Encoding: chunked"), b"0\r\n\r\n", hidden
    )
    assert answer.count(b"HTTP/1.1 ") <= 2
    assert b"HTTP/1.1 200" not in answer
    assert len(engine.bodies) == served
    await nothing_is_held(shared, "chat")


@pytest.mark.parametrize("flood", ["one", "many", "endless"])
async def test_a_flood_of_headers_is_refused(shared, engine, flood):
    served = len(engine.bodies)
    lines = {
        "one": [f"X-Long: {'a' * (MAX_HEADER_BYTES.default + 1)}"],
        "many": [f"X-{number}: a" for number in range(2_000)],
        "endless": [f"X-{number}: {'a' * 1000}" for number in range(3_000)],
    }[flood]
    body = json.dumps(BODIES["chat"]).encode()
    answer = await raw_answer(shared, head("chat", f"Content-Length: {len(body)}", "Connection: close", *lines), body)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert len(engine.bodies) == served
    await nothing_is_held(shared, "chat")


async def test_noise_on_the_port_leaves_the_gateway_alive(shared):
    for noise in (
        os.urandom(4096),
        b"\0" * 4096,
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnoise" * 9,
    ):
        answer = await raw_answer(shared, noise, b"\r\n\r\n", wait=False)
        assert answer == b""
    await nothing_is_held(shared, "chat")


async def test_a_path_is_taken_as_it_is(shared):
    for path in ("/v1/chat/completions/", "/v1//chat/completions", "/v1/%2e%2e/metrics", "/V1/chat/completions"):
        reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
        request = f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 404"), path
    async with shared.http.get(f"{shared.url}/v1/models/{MODEL}") as answer_without_key:
        assert answer_without_key.status == 401
