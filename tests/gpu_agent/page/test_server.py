from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import pytest

from gpu_agent.page import server
from gpu_agent.page.pages import Pages
from gpu_agent.page.server import Answer, Later, PageServer, Request
from gpu_agent.pre_stop import UnknownEngine
from tests.services import free_port
from tests.wire.fake_control import DEADLINE_SECONDS


def endless():
    while True:
        yield b"x" * 65_536


def answer(request):
    if request.path == "/pieces":
        return Answer(HTTPStatus.OK, "text/plain", iter([b"one ", b"", b"two"]))
    if request.path == "/endless":
        return Answer(HTTPStatus.OK, "text/plain", endless())
    if request.path == "/fails":
        raise RuntimeError("no page")
    return Answer(HTTPStatus.OK, "text/plain", request.path.encode())


@asynccontextmanager
async def serving(answer=answer, port=None):
    port = port or free_port()
    task = asyncio.create_task(PageServer("127.0.0.1", port, answer).run())
    try:
        await accepting(port)
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def accepting(port):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


async def raw(port, request):
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await reader.read()
    finally:
        writer.close()


async def test_pages_are_read_by_get_and_by_head():
    async with serving() as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        async with client.get("/a?b=c") as response:
            assert (response.status, await response.text()) == (200, "/a")
            assert response.headers["Cache-Control"] == "no-store"
        async with client.get("/pieces") as response:
            assert await response.text() == "one two"
        for path in ("/a", "/pieces"):
            async with client.head(path) as response:
                assert (response.status, await response.read()) == (200, b"")


async def test_clients_of_http_1_0_are_answered_as_they_understand():
    async with serving() as port:
        head, _, body = (await raw(port, b"GET /pieces HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        assert body == b"one two"
        assert b"chunked" not in head


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET http://other/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000, 431),
    ],
)
async def test_what_is_no_small_request_is_refused(request_bytes, status):
    async with serving() as port:
        assert (await raw(port, request_bytes)).startswith(f"HTTP/1.1 {status} ".encode())
        assert b"200 OK" in await raw(port, b"GET / HTTP/1.1\r\n\r\n"), "others are still served"


@pytest.mark.parametrize("request_bytes", [b"", b"GET / HTTP/1.1\r\n"])
async def test_a_client_that_does_not_ask_is_let_go(monkeypatch, request_bytes):
    monkeypatch.setattr(server, "_CONNECTION_SECONDS", 0.1)
    async with serving() as port:
        with contextlib.suppress(ConnectionError):
            assert await raw(port, request_bytes) == b""


async def write_on(writer):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            await asyncio.sleep(0.01)
            writer.write(b"more")
            await writer.drain()


async def test_a_client_that_does_not_read_is_let_go(monkeypatch):
    monkeypatch.setattr(server, "_CONNECTION_SECONDS", 0.1)
    async with serving() as port:
        # Its buffer is full after some bytes, and so is the server's.
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionError):
            await write_on(writer)
        writer.close()


async def test_connections_are_bounded_and_free_again(monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS", 3)
    async with serving() as port:
        held = []

        async def refused():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                return await reader.read() == b""
            except ConnectionError:
                return True
            finally:
                writer.close()

        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await refused():
                held.append(await asyncio.open_connection("127.0.0.1", port, limit=1024))
                held[-1][1].write(b"GET /endless HTTP/1.1\r\n\r\n")
        assert len(held) <= 4
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await refused():  # noqa: ASYNC110 - nothing here tells of a connection's end
                await asyncio.sleep(0.01)


async def test_connections_that_ask_nothing_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS", 3)
    async with serving() as port:
        held = []
        for _ in range(10):
            held.append(await asyncio.open_connection("127.0.0.1", port))
            held[-1][1].write(b"GET / HT")
        assert b"200 OK" in await raw(port, b"GET / HTTP/1.1\r\n\r\n")
        for _, writer in held:
            writer.close()


async def test_the_end_of_the_server_is_no_defect_of_the_connections_that_are_open(caplog):
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        # Answered after the first was accepted.
        await raw(port, b"GET / HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await reader.read() == b""
    writer.close()
    assert "Exception in callback" not in caplog.text


async def test_a_page_that_fails_is_logged_and_keeps_no_other_from_being_served(caplog):
    async with serving() as port:
        assert await raw(port, b"GET /fails HTTP/1.1\r\n\r\n") == b""
        assert "a page failed" in caplog.text
        assert b"200 OK" in await raw(port, b"GET / HTTP/1.1\r\n\r\n")


async def test_an_address_that_is_taken_is_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(server, "_BIND_AGAIN_SECONDS", 0.01)
    port = free_port()
    taken = socket.create_server(("127.0.0.1", port))
    task = asyncio.create_task(PageServer("127.0.0.1", port, answer).run())
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while "no page is served" not in caplog.text:  # noqa: ASYNC110 - a log line has no event
                await asyncio.sleep(0.01)
        taken.close()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                try:
                    assert b"200 OK" in await raw(port, b"GET / HTTP/1.1\r\n\r\n")
                except ConnectionError:
                    await asyncio.sleep(0.01)
                else:
                    break
        assert caplog.text.count("no page is served") == 1
    finally:
        taken.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pages(token="", node=(), empty=None, **engines):
    return Pages(
        token=token,
        live=lambda: [],
        node=lambda: list(node),
        engine=lambda name: engines.get(name, ["engine_unknown"]),
        empty=empty,
    )


@pytest.mark.parametrize(
    ("why_not", "answer"),
    [("", (200, {"drained": True})), ("1 runs", (503, {"drained": False, "detail": "1 runs"}))],
)
async def test_an_engine_is_emptied_for_longer_than_a_page_may_take(monkeypatch, why_not, answer):
    asked = []

    async def empty(name, limit_seconds):
        asked.append((name, limit_seconds))
        await asyncio.sleep(0.3)
        return why_not

    monkeypatch.setattr(server, "_CONNECTION_SECONDS", 0.2)
    async with serving(pages(empty=empty).answer) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert await got(client, "/engines/e1/pre-stop?limit=5") == answer
    assert asked == [("e1", 5)]


@pytest.mark.parametrize("query", ["", "?limit=0", "?limit=3601", "?limit=x", "?limit=-1", "?limit=99999"])
async def test_how_long_an_engine_is_emptied_is_bounded(query):
    async with serving(pages().answer) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert (await got(client, f"/engines/e1/pre-stop{query}"))[0] == 400


async def test_an_engine_that_is_not_there_is_not_emptied():
    async def empty(name, limit_seconds):
        raise UnknownEngine(name)

    async with serving(pages(empty=empty).answer) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert (await got(client, "/engines/e9/pre-stop?limit=5"))[0] == 404


@pytest.mark.parametrize(
    ("token", "authorization", "taken"), [("", b"", False), ("t", b"Bearer x", False), ("t", b"Bearer t", True)]
)
async def test_from_elsewhere_an_engine_is_emptied_with_the_token_alone(token, authorization, taken):
    async def empty(name, limit_seconds):
        return ""

    answer = pages(token=token, empty=empty).answer(Request("/engines/e1/pre-stop", authorization, "limit=5"))
    if isinstance(answer, Later):
        answer = await answer.answer
    assert answer.status == (HTTPStatus.OK if taken else HTTPStatus.FORBIDDEN)


async def got(client, path, **headers):
    async with client.get(path, headers=headers) as response:
        return response.status, await response.json()


async def test_readiness_says_why_not_and_asks_for_no_token():
    agents = pages(token="t" * 20, node=["node_cordoned"], e1=[], e2=["engine_hung", "node_cordoned"])
    async with serving(agents.answer) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert await got(client, "/healthz") == (200, {"ok": True})
        assert await got(client, "/readyz") == (503, {"ready": False, "reasons": ["node_cordoned"]})
        assert await got(client, "/engines/e1/readyz") == (200, {"ready": True})
        assert await got(client, "/engines/e2/readyz") == (
            503,
            {"ready": False, "reasons": ["engine_hung", "node_cordoned"]},
        )
        assert (await got(client, "/engines/e9/readyz"))[0] == 503
        for path in ("/", "/engines/e1", "/readyz/", "/engines/readyz"):
            assert (await got(client, path))[0] == 404
        async with client.head("/engines/e2/readyz") as response:
            assert response.status == 503


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Basic dDp0", "Bearer", "tttttttttttttttttttt"])
async def test_metrics_ask_for_the_token_and_tell_nobody_what_it_is(shown):
    async with (
        serving(pages(token="t" * 20).answer) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        status, body = await got(client, "/metrics", **({"Authorization": shown} if shown else {}))
        assert (status, "ttt" in str(body)) == (401, False)
        async with client.get("/metrics", headers={"Authorization": f"Bearer {'t' * 20}"}) as response:
            assert response.status == 200
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_metrics_without_a_token_are_open():
    async with serving(pages().answer) as port:
        assert b" 200 OK" in await raw(port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_answers_come_while_a_large_page_is_read():
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
        await reader.readexactly(100_000)
        begun = time.monotonic()
        assert b" 200 OK" in await raw(port, b"GET /quick HTTP/1.1\r\n\r\n")
        assert time.monotonic() - begun < 10
        writer.close()
