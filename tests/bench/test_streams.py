"""The benchmark's streams, client and engine: nothing between them, so what is told is known."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.support.held_streams import held_streams
from tests.services import Process, free_port

EVERY_MS = 100


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[int]:
    port = free_port()
    argv = [sys.executable, "-m", "bench.support.drip_engine", "--port", str(port), "--every-ms", str(EVERY_MS)]
    with Process(argv, log=tmp_path / "engine.log") as process:
        await asyncio.to_thread(process.wait_for_port, port)
        yield port


async def test_streams_are_held_and_their_events_timed(engine: int, tmp_path: Path):
    body = tmp_path / "body.json"
    body.write_text("{}")
    async with held_streams(engine, "/v1/chat/completions", body, "key", 150, 1) as seen:
        figures = await seen
    assert figures["cut"] == 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    # 150 streams at 10 events a second, were the machine idle.
    assert 300 < figures["events_per_second"] <= 1800


async def test_a_port_that_serves_no_stream_is_an_error(tmp_path: Path):
    body = tmp_path / "body.json"
    body.write_text("{}")
    with pytest.raises(RuntimeError, match="3 streams did not begin"):
        async with held_streams(free_port(), "/v1/chat/completions", body, "key", 3, 1):
            pass
