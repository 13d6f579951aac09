"""Engines that cut, stall or answer rubbish, in every API: an error of the API's shape or a clean end, nothing held."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from gateway.settings import MAX_ANSWER_BYTES, STREAM_SILENCE_SECONDS
from tests.gateway.fleet import RunningGateway, changed, running_gateway, shared_configuration
from tests.gateway.protocols import BODIES, PATHS, STREAMED, WHOLE, data_of, stream_parts

pytestmark = pytest.mark.asyncio(loop_scope="module")
APIS = pytest.mark.parametrize("api", PATHS)
STREAMS = pytest.mark.parametrize("api", STREAMED)
Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]
SECRET = "10.99.88.77"


class RawEngine:
    """Reads one request a connection, then writes what a test says, of HTTP or not."""

    def __init__(self) -> None:
        self.behave: Behaviour = says(b"")
        self.hold = asyncio.Event()
        self.url = ""
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            # What it is asked for besides, it does not have.
            if head.startswith(b"POST "):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                await self.behave(writer)
                await writer.drain()
        writer.close()


def says(data: bytes) -> Behaviour:
    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return say


def http(body: bytes, *lines: str, kind: str = "application/json", status: str = "200 OK") -> bytes:
    # Said, since it is so: a gateway that took the connection for another request would meet its end.
    own: tuple[str, ...] = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", "Connection: close")
    own += lines or (f"Content-Length: {len(body)}",)
    return "\r\n".join((*own, "", "")).encode() + body


def events(*parts: bytes) -> bytes:
    """A stream that says its length by closing."""
    return http(b"".join(parts), "Cache-Control: no-cache", kind="text/event-stream")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[RawEngine]:
    engine = RawEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(engine: RawEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    content = changed(shared_configuration(engine.url), tenants__alpha={"max_parallel_requests": 1})
    settings = {MAX_ANSWER_BYTES.name: "100000", STREAM_SILENCE_SECONDS.name: "0.5"}
    async with running_gateway(tmp_path_factory.mktemp("bad-engines"), content, settings) as gateway:
        yield gateway


async def nothing_is_held(gateway: RunningGateway) -> None:
    async def held() -> float:
        names = ("requests_in_flight", "kv_reserved_tokens", "engine_requests")
        return sum([await gateway.metric(f"headworks_gateway_{name}") for name in names])

    await gateway.until(held, 0, "everything to be given back")


RUBBISH = {
    "nothing": b"",
    "no HTTP": b"hello\r\n\r\n",
    "noise": bytes(range(256)) * 4,
    "a head alone": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X-A: a\r\n" * 20_000,
    "a long header": b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
    "a page": http(b"<html>hello</html>", kind="text/html"),
    "a page as JSON": http(b"<html>hello</html>"),
    "an empty answer": http(b""),
    "a list": http(b"[]"),
    "half an answer": http(b'{"usage": {"prompt_tokens": 1'),
    "a false length": http(b"{}", "Content-Length: 500"),
    "a negative length": http(b"{}", "Content-Length: -5"),
    "chunks that are none": http(b"zz\r\n{}\r\n", "Transfer-Encoding: chunked"),
    "chunks without end": http(b"2\r\n{}\r\n", "Transfer-Encoding: chunked"),
    "other bytes than UTF-8": http(b'{"choices": "\xff\xfe"}'),
    "a deep answer": http(b'{"choices": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    "a large answer": http(b'{"a": "' + b"a" * 200_000 + b'"}'),
    "an error with its address": http(json.dumps({"error": f"at {SECRET}"}).encode(), status="500 No"),
    "another place": http(b"", f"Location: http://{SECRET}/", "Content-Length: 0", status="302 Found"),
    "no content": http(b"", "Content-Length: 0", status="204 No Content"),
    "an unknown status": http(b"{}", status="799 What"),
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
}


@APIS
async def test_rubbish_is_an_error_that_tells_nothing_of_the_engine(
    shared: RunningGateway, engine: RawEngine, api: str
):
    for name, answer in RUBBISH.items():
        engine.behave = says(answer)
        status, document, headers = await shared.call(BODIES[api], path=PATHS[api])
        of_its_inputs = name == "a large answer" and api in ("embeddings", "rerank")
        expected = (400, "answer_too_large") if of_its_inputs else (502, "engine_error")
        assert (status, document["error"]["code"]) == expected, (name, document)
        assert (document.get("type") == "error") == (api == "messages"), name
        told = f"{document}{headers}"
        assert SECRET not in told, name
        assert engine.url.removeprefix("http://") not in told, name
    await nothing_is_held(shared)


@STREAMS
async def test_a_stream_of_rubbish_is_an_error_as_well(shared: RunningGateway, engine: RawEngine, api: str):
    streams = {
        **RUBBISH,
        "a stream of a page": events(b"<html>hello</html>\n\n"),
        "a stream of texts": events(b"data: hello\n\n", b"data: there\n\n"),
        "a stream of lists": events(b"data: []\n\n"),
        "a stream of nothing": events(),
        "a stream of comments": events(b": hello\n\n" * 5),
        "an unfinished event": events(b'data: {"choices": []'),
        "an unfinished stream": http(b"5\r\ndata:", "Transfer-Encoding: chunked", kind="text/event-stream"),
    }
    for name, answer in streams.items():
        engine.behave = says(answer)
        async with shared.post({**BODIES[api], "stream": True}, path=PATHS[api]) as got:
            document = json.loads(await got.read())
        assert (got.status, document["error"]["code"]) == (502, "engine_error"), (name, document)
        assert SECRET not in f"{document}{got.headers}", name
    await nothing_is_held(shared)


async def read_all(gateway: RunningGateway, api: str) -> bytes:
    async with gateway.post({**BODIES[api], "stream": True}, path=PATHS[api]) as answer:
        data: bytes = await answer.read()
        return data


def last_error(data: bytes) -> Any:
    return data_of(data)[-1]["error"]["code"]


@STREAMS
async def test_a_stream_that_is_cut_ends_in_an_error_event(shared: RunningGateway, engine: RawEngine, api: str):
    good = b"".join(stream_parts(api)[:2])
    cut = http(b"%x\r\n%b\r\n" % (len(good), good), "Transfer-Encoding: chunked", kind="text/event-stream")
    for name, rest in {"the end": b"", "rubbish": b"zz\r\n", "half a chunk": b"ff\r\ndata: {"}.items():

        async def cut_once_it_is_read(writer: asyncio.StreamWriter, rest: bytes = rest) -> None:
            writer.write(cut)
            await writer.drain()
            await engine.hold.wait()
            writer.write(rest)

        engine.behave = cut_once_it_is_read
        async with shared.post({**BODIES[api], "stream": True}, path=PATHS[api]) as answer:
            begun = await answer.content.readany()
            engine.hold.set()
            whole = begun + await answer.read()
        engine.hold.clear()
        assert whole.startswith(good), name
        assert last_error(whole) == "engine_error", name
    await nothing_is_held(shared)


@STREAMS
async def test_a_stream_that_stalls_ends_in_an_error_event(shared: RunningGateway, engine: RawEngine, api: str):
    async def stall(writer: asyncio.StreamWriter) -> None:
        writer.write(events(*stream_parts(api)[:2]))
        await writer.drain()
        await engine.hold.wait()

    engine.behave = stall
    assert last_error(await read_all(shared, api)) == "engine_error"
    engine.hold.set()
    engine.hold.clear()
    await nothing_is_held(shared)


async def test_what_opens_a_response_does_not_begin_its_time(shared: RunningGateway, engine: RawEngine):
    opening, *rest = stream_parts("responses")

    async def prefill(writer: asyncio.StreamWriter) -> None:
        writer.write(events(opening))
        await writer.drain()
        # Twice as long as an engine may be silent once it has begun.
        await asyncio.sleep(1)
        writer.write(b"".join(rest))

    engine.behave = prefill
    assert await read_all(shared, "responses") == b"".join((opening, *rest))


@APIS
async def test_an_engine_that_never_answers_is_left_at_the_deadline(
    shared: RunningGateway, engine: RawEngine, api: str
):
    async def stall(writer: asyncio.StreamWriter) -> None:
        await engine.hold.wait()

    engine.behave = stall
    headers = {"X-Request-Timeout-Ms": "200"}
    status, document, _ = await shared.call(BODIES[api], path=PATHS[api], headers=headers)
    assert (status, document["error"]["code"]) == (504, "deadline_exceeded")
    engine.hold.set()
    engine.hold.clear()
    await nothing_is_held(shared)


@APIS
async def test_it_serves_on_after_all_of_that(shared: RunningGateway, engine: RawEngine, api: str):
    engine.behave = says(http(json.dumps(WHOLE[api]).encode()))
    status, document, _ = await shared.call(BODIES[api], path=PATHS[api])
    assert (status, document) == (200, WHOLE[api])
