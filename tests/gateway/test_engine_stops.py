"""The engine itself stops within a second of a client's leaving, by its own counters."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.fleet import RunningGateway, changed, chat, configuration, running_gateway
from tests.gateway.leavers import LEAVERS, Leaver
from tests.services import Process, free_port

STOP_SECONDS = 1.0
# Minutes of output at this speed, and some seconds of prefill, in parts, for the long prompt.
MAX_TOKENS = 1500
LONG_PROMPT = "word " * 2000
SPEED = ("--speed", "0.2", "--max-num-seqs", "64", "--max-num-batched-tokens", "64")


@dataclass
class SimulatedEngine:
    url: str
    http: aiohttp.ClientSession

    async def sample(self, name: str) -> float:
        async with self.http.get(f"{self.url}/metrics") as answer:
            page = await answer.text()
        samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == name)

    async def running(self) -> float:
        return await self.sample("vllm:num_requests_running")


@pytest.fixture
async def simulated(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, SimulatedEngine]]:
    port = free_port()
    argv = [sys.executable, "-m", "simulator.engine", "--port", str(port), "--model", "served-8b", *SPEED]
    with Process(argv, log=tmp_path / "engine.log") as process:
        await asyncio.to_thread(process.wait_for_port, port)
        url = f"http://127.0.0.1:{port}"
        content = changed(
            configuration(url),
            models={"acme/small-8b": {"max_context_tokens": 131_072, "default_max_tokens": 50, "max_tokens": 4096}},
        )
        async with running_gateway(tmp_path, content) as gateway:
            yield gateway, SimulatedEngine(url, gateway.http)


@pytest.mark.parametrize(
    ("prompt", "stream"), [("hello", True), ("hello", False), (LONG_PROMPT, True)], ids=["stream", "whole", "prefill"]
)
async def test_it_stops_when_the_client_has_left(
    simulated: tuple[RunningGateway, SimulatedEngine], prompt: str, stream: bool
):
    gateway, engine = simulated
    body = json.dumps(chat(prompt, stream=stream, max_tokens=MAX_TOKENS, ignore_eos=True)).encode()
    for leaver in LEAVERS:
        client: Leaver = leaver()
        await client.ask(gateway.port, body)
        await gateway.until(engine.running, 1, "the engine to run it")
        left_at = time.monotonic()
        await client.leave()
        await gateway.until(engine.running, 0, "the engine to stop")
        assert time.monotonic() - left_at < STOP_SECONDS
        await client.close()
    generated = await engine.sample("vllm:generation_tokens_total")
    assert generated < MAX_TOKENS
    assert (await gateway.call(chat("hi", max_tokens=5, ignore_eos=True)))[0] == 200
    assert await engine.sample("vllm:generation_tokens_total") == generated + 5, "nothing was generated meanwhile"
