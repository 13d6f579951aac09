"""An engine that says nothing any more within a stream has failed: a hung one keeps its connections open."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.fleet import (
    DONE,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
)

SILENCE_SECONDS = 0.8
SILENCE = "HEADWORKS_GATEWAY_STREAM_SILENCE_SECONDS"


@pytest.fixture
async def impatient(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway that waits `SILENCE_SECONDS`, before an engine whose breaker opens at the first failure."""
    breaker = {"minimum_requests": 1, "error_permille": 1, "cooldown_ms": 3_600_000}
    content = changed(
        configuration(engine.url),
        pools__main__breaker=breaker,
        engines__e0__kv_capacity_tokens=1000,
        tenants__alpha={"tpm_limit": 600, "max_parallel_requests": 1},
    )
    async with running_gateway(tmp_path, content, {SILENCE: str(SILENCE_SECONDS)}) as gateway:
        yield gateway


def paced(*pauses_seconds: float) -> Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]:
    """A stream of a token after each pause."""

    async def speak(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for pause_seconds in pauses_seconds:
            await asyncio.sleep(pause_seconds)
            await response.write(event(delta("a")))
        await response.write(DONE)
        return response

    return speak


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_engine_has_not_begun_while_its_port_stays_closed_is_asked_of_another(
    engine: ScriptedEngine, second_engine: ScriptedEngine, tmp_path: Path, stream: bool
):
    """vLLM that is stopped can close its port and keep its connections, silent."""
    environment = {SILENCE: str(SILENCE_SECONDS), "HEADWORKS_GATEWAY_ENGINE_LOOK_SECONDS": "0.1"}
    content = configuration(engine.url, second_engine.url)
    async with running_gateway(tmp_path, content, environment) as gateway:
        engine.behave = engine.silence
        asked = asyncio.ensure_future(gateway.call_status(chat(stream=stream, max_tokens=300)))
        await asyncio.wait_for(engine.arrived.wait(), 10)
        closed_at = time.monotonic()
        await engine.close_port()
        assert await asyncio.wait_for(asked, 15) == 200
        assert time.monotonic() - closed_at >= SILENCE_SECONDS
        assert len(second_engine.bodies) == 1
        await gateway.until(lambda: gateway.metric("headworks_gateway_retries_total", pool="main"), 1, "a retry")


async def test_what_has_begun_goes_on_behind_a_closed_port(engine: ScriptedEngine, tmp_path: Path):
    """An engine that drains takes no connection, and ends what it has."""
    environment = {SILENCE: str(SILENCE_SECONDS), "HEADWORKS_GATEWAY_ENGINE_LOOK_SECONDS": "0.1"}
    async with running_gateway(tmp_path, configuration(engine.url), environment) as gateway:
        engine.behave = paced(*[SILENCE_SECONDS / 2] * 6)
        answer = await gateway.open_stream(chat(stream=True))
        await answer.content.readany()
        await engine.close_port()
        assert (await answer.content.read()).endswith(DONE)


async def test_a_stream_that_falls_silent_fails_and_gives_everything_back(
    impatient: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.one_token_then_silence
    asked = time.monotonic()
    async with impatient.post(chat(stream=True, max_tokens=300)) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert time.monotonic() - asked >= SILENCE_SECONDS
    assert text.startswith(event(delta("first")).decode())
    assert '"code":"engine_error"' in text
    assert "[DONE]" not in text
    await impatient.until_left(engine)
    assert "its stream was silent for 0.8 s" in impatient.process.log_tail()
    assert await impatient.metric("headworks_gateway_requests_total", outcome="failed", reason="engine_error") == 1
    assert await impatient.metric("headworks_gateway_breaker_state", engine="e0", state="open") == 1
    assert await impatient.metric("headworks_gateway_kv_reserved_tokens", engine="e0") == 0
    # The prompt was measured as 7 tokens and one came; the other 299 are given back.
    assert await impatient.remaining_tokens() >= 600 - 8
    assert await impatient.refusal(chat()) == (503, "breaker_open"), "and the one parallel place is free"


async def test_a_long_prefill_and_a_slow_stream_are_not_silence(impatient: RunningGateway, engine: ScriptedEngine):
    engine.behave = paced(2 * SILENCE_SECONDS, *[SILENCE_SECONDS / 8] * 11)
    async with impatient.post(chat(stream=True)) as answer:
        text = await answer.text()
    assert text == (event(delta("a")) * 12 + DONE).decode()


async def test_a_gateway_that_stood_still_itself_does_not_blame_the_engine(
    impatient: RunningGateway, engine: ScriptedEngine
):
    engine.behave = engine.drip
    async with impatient.post(chat(stream=True)) as answer:
        await answer.content.readany()
        os.kill(impatient.process.pid, signal.SIGSTOP)
        await asyncio.sleep(2 * SILENCE_SECONDS)
        os.kill(impatient.process.pid, signal.SIGCONT)
        went_on = time.monotonic()
        text = b""
        while time.monotonic() < went_on + SILENCE_SECONDS / 2:
            text += await answer.content.readany()
        assert b'"error"' not in text
        answer.close()
    assert await impatient.metric("headworks_gateway_breaker_state", engine="e0", state="closed") == 1


async def test_a_stream_without_end_ends_when_its_time_is_over(engine: ScriptedEngine, tmp_path: Path):
    engine.behave = engine.drip
    limit = {"HEADWORKS_GATEWAY_MAX_REQUEST_SECONDS": "1"}
    async with running_gateway(tmp_path, configuration(engine.url), limit) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            text = await answer.text()
        assert text.startswith(event(delta("a")).decode() * 10)
        assert text.count('"code":"deadline_exceeded"') == 1
        await gateway.until_left(engine)


async def test_a_limit_of_zero_is_none(engine: ScriptedEngine, tmp_path: Path):
    engine.behave = paced(0, SILENCE_SECONDS)
    async with (
        running_gateway(tmp_path, configuration(engine.url), {SILENCE: "0"}) as gateway,
        gateway.post(chat(stream=True)) as answer,
    ):
        text = await answer.text()
    assert text == (event(delta("a")) * 2 + DONE).decode()
