"""Connections: what happens to an exchange when its client leaves, floods, or its handler fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import simulator.http_server
from simulator.http_server import Exchange, Server

GET = b"GET / HTTP/1.1\r\n\r\n"
Start = Callable[[Callable[[Exchange], None]], Awaitable[int]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serve a function on a free port."""
    servers: list[Server] = []

    async def start(application: Callable[[Exchange], None]) -> int:
        servers.append(Server(application))
        return await servers[-1].listen("127.0.0.1", 0)

    yield start
    for server in servers:
        await server.close(flush_seconds=1)


async def test_a_client_that_leaves_is_noticed_before_any_answer_and_writing_then_is_harmless(start: Start) -> None:
    came, left = asyncio.Event(), asyncio.Event()
    exchanges: list[Exchange] = []

    def application(exchange: Exchange) -> None:
        exchange.on_disconnect = left.set
        exchanges.append(exchange)
        came.set()

    port = await start(application)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)
    await asyncio.wait_for(came.wait(), 5)
    writer.close()
    await asyncio.wait_for(left.wait(), 5)
    exchange = exchanges[0]
    assert not exchange.open
    exchange.answer(200, b"")
    exchange.start_stream()
    exchange.write_chunks(b"")
    exchange.end_stream()


async def test_a_client_that_floods_a_busy_connection_is_cut_off(start: Start) -> None:
    port = await start(lambda exchange: None)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)

    async def flood() -> None:
        while True:
            writer.write(b"x" * (1024 * 1024))
            await writer.drain()

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(flood(), 10)


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator.http_server, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(simulator.http_server, "SWEEP_SECONDS", 0.02)
    exchanges: list[Exchange] = []
    port = await start(exchanges.append)
    busy_reader, busy_writer = await asyncio.open_connection("127.0.0.1", port)
    busy_writer.write(GET)
    idle_reader, _ = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(idle_reader.read(), 5) == b""
    exchanges[0].answer(200, b"late")
    assert (await asyncio.wait_for(busy_reader.readuntil(b"late"), 5)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_bytes_that_are_no_http_get_an_answer_and_the_connection_ends(start: Start) -> None:
    port = await start(lambda exchange: exchange.answer(200, b""))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close\r\n" in answer
    assert b'"the first line must be: METHOD TARGET HTTP/1.1"' in answer


async def test_connection_close_is_honoured_after_a_stream(start: Start) -> None:
    def application(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.end_stream()

    port = await start(application)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\n0\r\n\r\n")
