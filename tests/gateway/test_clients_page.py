"""The code of docs/clients.md, as it stands there, against a real gateway."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    DONE,
    KEYS,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
    scripted_engine,
    shared_configuration,
)
from tests.services import service_binary

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
ASK: dict[str, Any] = {"model": "acme/small-8b", "messages": [{"role": "user", "content": "hello"}]}
in_one_loop = pytest.mark.asyncio(loop_scope="module")

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("clients"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(shared_configuration(engine.url))
    return shared


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def here(code: str, gateway: RunningGateway) -> str:
    for page, real in (("https://llm.example", gateway.url), ("hw-…", KEYS["alpha"])):
        code = code.replace(page, real)
    return code


@pytest.fixture
def polite(gateway: RunningGateway) -> SimpleNamespace:
    """What the page defines, its `client` and a budget of its own included."""
    connect, module, events, _ = blocks("python")
    names: dict[str, Any] = {}
    for code in (module, events, here(connect, gateway)):
        exec(code, names)
    return SimpleNamespace(**names, budget=names["RetryBudget"]())


async def requests(gateway: RunningGateway) -> float:
    return await gateway.grown("headworks_gateway_requests_total", tenant="alpha")


@pytest_asyncio.fixture(loop_scope="module")
async def crowded(gateway: RunningGateway, engine: ScriptedEngine) -> AsyncIterator[None]:
    """The tenant's one place is taken until the engine's `release`."""
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"max_parallel_requests": 1}))
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat(stream=True)) as occupant:
        await occupant.content.readany()
        yield


@in_one_loop
async def test_it_asks_again_when_retry_after_is_over(
    gateway: RunningGateway, engine: ScriptedEngine, polite: SimpleNamespace, crowded: None
):
    asking = asyncio.ensure_future(asyncio.to_thread(polite.ask, polite.client, polite.budget, 30, **ASK))
    refused_at = time.monotonic()

    async def refused() -> float:
        return await gateway.grown("headworks_gateway_requests_total", reason="max_parallel_requests")

    await gateway.until(refused, 1, "a refusal")
    engine.behave = engine.answer
    engine.release.set()
    assert (await asking).choices[0].message.content == "ab"
    assert time.monotonic() - refused_at >= 0.9, "Retry-After was a second"
    assert polite.budget.left == polite.budget.most - 1


@in_one_loop
async def test_without_a_budget_the_first_refusal_is_the_last(
    gateway: RunningGateway, polite: SimpleNamespace, crowded: None
):
    budget = polite.RetryBudget(most=0.5)
    with pytest.raises(openai.RateLimitError):
        await asyncio.to_thread(polite.ask, polite.client, budget, 30, **ASK)
    assert await gateway.grown("headworks_gateway_requests_total", outcome="refused") == 1


@in_one_loop
async def test_what_can_never_be_served_is_asked_once(
    gateway: RunningGateway, engine: ScriptedEngine, polite: SimpleNamespace
):
    with pytest.raises(openai.NotFoundError):
        await asyncio.to_thread(polite.ask, polite.client, polite.budget, 30, **{**ASK, "model": "none"})
    assert await requests(gateway) == 1
    engine.behave = engine.failing(500)
    with pytest.raises(openai.InternalServerError):
        await asyncio.to_thread(polite.ask, polite.client, polite.budget, 30, attempts=2, **ASK)
    assert await requests(gateway) == 3, "an engine's failure is worth a second try"


@in_one_loop
async def test_the_deadline_goes_along(gateway: RunningGateway, engine: ScriptedEngine, polite: SimpleNamespace):
    engine.behave = engine.silence
    asked = time.monotonic()
    with pytest.raises(openai.InternalServerError) as raised:
        await asyncio.to_thread(polite.ask, polite.client, polite.budget, 0.5, **ASK)
    assert raised.value.code == "deadline_exceeded"
    assert time.monotonic() - asked < 1.5, "the gateway says so before the client's own clock does"
    assert await requests(gateway) == 1


@in_one_loop
async def test_a_stream_that_is_left_stops_the_engine(
    gateway: RunningGateway, engine: ScriptedEngine, polite: SimpleNamespace
):
    engine.behave = engine.drip

    def first_tokens() -> list[str]:
        texts = polite.tokens(polite.client, polite.budget, 30, **ASK)
        taken = [next(texts) for _ in range(3)]
        texts.close()
        return taken

    assert await asyncio.to_thread(first_tokens) == ["a"] * 3
    await gateway.until_left(engine)


def test_pauses_are_spread_over_the_whole_of_a_bound_that_doubles(polite: SimpleNamespace):
    for attempt, bound in enumerate((0.5, 1, 2, 4)):
        pauses = [polite.pause_seconds(attempt, 3) - 3 for _ in range(300)]
        assert 0 <= min(pauses) < bound / 8
        assert bound * 7 / 8 < max(pauses) <= bound


def test_comments_are_no_events(polite: SimpleNamespace):
    stream = b": waiting\n\ndata: one\n\n: waiting\n\ndata: two\ndata: lines\r\n\r\ndata: [DONE]\n\n"
    assert list(polite.events(stream.splitlines(keepends=True))) == [b"one", b"two\nlines", b"[DONE]"]


@in_one_loop
async def test_an_agent_names_its_session(gateway: RunningGateway, polite: SimpleNamespace):
    await gateway.publish(
        changed(
            gateway.control.content,
            tenants__alpha={"session_limits": "short"},
            session_limits__short={"max_iterations": 1, "max_depth": 1},
        )
    )
    code = blocks("python")[3]
    await asyncio.to_thread(exec, code, vars(polite))
    with pytest.raises(openai.APIStatusError) as raised:
        await asyncio.to_thread(exec, code, vars(polite))
    assert raised.value.code == "session_iterations"


@in_one_loop
async def test_curl_streams(gateway: RunningGateway, engine: ScriptedEngine):
    [code] = blocks("sh")
    service_binary("curl")
    called = await asyncio.create_subprocess_exec(
        "sh", "-c", here(code, gateway), stdout=subprocess.PIPE, env={**os.environ, "KEY": KEYS["alpha"]}
    )
    said, _ = await called.communicate()
    assert said == event(delta("a")) + event(delta("b")) + DONE
