"""A client that asks and never reads holds its place no longer than a deadline, and a drain not at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.fleet import (
    KEYS,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    terminate,
)

BOUNDS = {
    "HEADWORKS_GATEWAY_LAST_SEND_SECONDS": "0.3",
    "HEADWORKS_GATEWAY_DRAIN_SECONDS": "0.2",
    # While the client takes nothing, the engine's silence is not the engine's.
    "HEADWORKS_GATEWAY_STREAM_SILENCE_SECONDS": "0.5",
}


@pytest.fixture
async def flooded(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway before an engine whose streams never end."""
    engine.behave = engine.flood
    content = changed(configuration(engine.url), tenants__alpha={"max_parallel_requests": 1})
    async with running_gateway(tmp_path, content, BOUNDS) as gateway:
        yield gateway


async def ask_and_read_nothing(gateway: RunningGateway, engine: ScriptedEngine, *headers: str) -> socket.socket:
    """The open connection of a stream whose bytes have filled every buffer on their way."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", gateway.port))
    body = json.dumps(chat(stream=True))
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: g", f"Authorization: Bearer {KEYS['alpha']}", *headers)
    connection.sendall("\r\n".join((*lines, f"Content-Length: {len(body)}", "", body)).encode())
    await asyncio.wait_for(engine.stuck.wait(), 20)
    return connection


async def in_flight(gateway: RunningGateway) -> float:
    return await gateway.metric("headworks_gateway_requests_in_flight")


async def test_it_does_not_hold_up_a_drain(flooded: RunningGateway, engine: ScriptedEngine):
    with await ask_and_read_nothing(flooded, engine):
        terminate(flooded)
        assert await asyncio.to_thread(flooded.process.wait, 15) == 0
    assert "drained" in flooded.process.log_tail()
    assert "Traceback" not in flooded.process.log_tail()


async def test_its_place_is_free_after_the_deadline(flooded: RunningGateway, engine: ScriptedEngine):
    with await ask_and_read_nothing(flooded, engine, "X-Request-Timeout-Ms: 6000"):
        assert await in_flight(flooded) == 1
        assert await flooded.refusal(chat()) == (429, "max_parallel_requests")
        await flooded.until(lambda: in_flight(flooded), 0, "the request to end")
        labels = {"outcome": "failed", "reason": "deadline_exceeded"}
        assert await flooded.metric("headworks_gateway_requests_total", **labels) == 1
        engine.behave = engine.answer
        assert (await flooded.call(chat()))[0] == 200


async def test_its_connection_is_given_up_when_it_takes_nothing_for_long(engine: ScriptedEngine, tmp_path: Path):
    engine.behave = engine.flood
    quick = {"HEADWORKS_GATEWAY_STALLED_CLIENT_SECONDS": "1"}
    async with running_gateway(tmp_path, configuration(engine.url), quick) as gateway:
        with await ask_and_read_nothing(gateway, engine):

            async def left() -> float:
                return await gateway.metric("headworks_gateway_requests_total", reason="client_left")

            await gateway.until(left, 1, "the connection to be given up")
        await gateway.until_left(engine)
