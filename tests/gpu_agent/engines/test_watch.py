from __future__ import annotations

import asyncio

import pytest

from gpu_agent.engines.look import look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.watch import EngineWatch
from tests.gpu_agent.fake_engine import fake_engine
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.snapshot import NodeEngine


@pytest.fixture
def seen():
    """Reports of looks that have ended, by engine."""
    return {}


@pytest.fixture
async def watch(seen):
    pages = EnginePages(timeout_seconds=2, limit_bytes=2**20)
    watch = EngineWatch(pages, lambda engine, look: seen.setdefault(look.report.name, []).append(look.report))
    yield watch
    await watch.stop()


@pytest.fixture
async def hung():
    async with fake_engine() as engine:
        engine.hung.add("/health")
        yield engine


def vllm(engine):
    return NodeEngine(engine.url, "vllm", "short", "llama")


async def until(holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():  # noqa: ASYNC110 - a look has no event
            await asyncio.sleep(0.005)


async def test_a_hung_engine_holds_back_none_of_the_others(watch, engine, hung, seen):
    watch.look({"good": vllm(engine), "hung": vllm(hung)})
    await until(lambda: seen)
    assert [report.state for report in seen["good"]] == ["up"]
    assert "hung" not in seen
    watch.look({"good": vllm(engine), "hung": vllm(hung)})
    await until(lambda: len(seen["good"]) == 2)
    await until(lambda: "hung" in seen)
    assert seen["hung"][0].state == "down"
    assert len(hung.requests) == 1, "no second look while one is under way"


async def test_an_engine_that_is_gone_or_another_is_not_told_of(watch, engine, hung, seen):
    watch.look({"e1": vllm(hung), "e2": vllm(hung)})
    await until(lambda: len(hung.requests) == 2)
    watch.look({"e1": vllm(engine), "e3": vllm(hung)})
    await until(lambda: "e3" in seen)
    assert [report.state for report in seen["e1"]] == ["up"]
    assert "e2" not in seen, "its look would have ended before that at e3"


async def test_a_look_that_fails_by_itself_is_said_and_the_others_go_on(watch, engine, seen, monkeypatch):
    async def failing(pages, name, chosen):
        if name == "bad":
            raise ZeroDivisionError
        return await look_at(pages, name, chosen)

    monkeypatch.setattr("gpu_agent.engines.watch.look_at", failing)
    watch.look({"bad": vllm(engine), "good": vllm(engine)})
    await until(lambda: len(seen) == 2)
    assert seen["good"][0].state == "up"
    assert (seen["bad"][0].state, seen["bad"][0].error) == ("down", "the agent failed to look: ZeroDivisionError")
