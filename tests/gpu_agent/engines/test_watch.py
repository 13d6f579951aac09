from __future__ import annotations

import asyncio

import pytest
from msgspec import UNSET

from gpu_agent.engines.look import Look, look_at
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
    watch = EngineWatch(
        pages,
        lambda engine, look: seen.setdefault(look.report.name, []).append(look.report),
        hung_seconds=60,
    )
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


# A core that hangs behind pages that answer.


@pytest.fixture
def clock():
    """What the watch takes for the time; its first element."""
    return [1000.0]


@pytest.fixture
async def look(engine, clock):
    """One look at the engine, so many seconds after the last; its page says what the test wants of it."""
    ended: asyncio.Queue[Look] = asyncio.Queue()
    pages = EnginePages(timeout_seconds=2, limit_bytes=2**20)
    watch = EngineWatch(pages, lambda _, look: ended.put_nowait(look), hung_seconds=60, clock=lambda: clock[0])

    async def look(passed_seconds=10, *, tokens=5, running=1, pool="short"):
        clock[0] += passed_seconds
        page = f"vllm:num_requests_running {running}\nvllm:iteration_tokens_total_count {tokens}\n"
        engine.pages["/metrics"] = (200, page.encode() if tokens is not None else b"no page\n")
        watch.look({"e1": NodeEngine(engine.url, "vllm", pool, "llama")})
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await ended.get()

    yield look
    await watch.stop()


async def test_an_engine_whose_work_stands_still_while_requests_run_is_up_and_hung(look):
    assert [(await look(running=2)).hung for _ in range(6)] == [False] * 6
    hung = await look(running=2)
    assert (hung.hung, hung.report.state, hung.report.version) == (True, "up", "0.32.0")
    assert hung.report.error.startswith("hung: requests running 2, nothing moved since 20")
    assert (await look(running=2)).report == hung.report, "or every look would be a change"
    well = await look(tokens=6)
    assert (well.hung, well.report.error) == (False, UNSET)


async def test_an_engine_that_was_started_again_has_all_its_time(look):
    assert (await look()).hung is False
    assert (await look(60, tokens=0)).hung is False
    assert (await look(59, tokens=0)).hung is False
    assert (await look(1, tokens=0)).hung is True


async def test_an_engine_without_requests_is_not_hung_however_long(look):
    assert (await look()).hung is False
    assert (await look(600, running=0)).hung is False
    assert (await look(600)).hung is False


async def test_a_page_that_cannot_be_read_tells_nothing_and_is_no_life(look):
    assert (await look()).hung is False
    unreadable = await look(30, tokens=None)
    assert unreadable.hung is None
    assert unreadable.report.error.startswith("/metrics: not_metrics: ")
    assert (await look(30)).hung is True


async def test_an_engine_that_is_down_is_not_hung_and_begins_anew(look, engine):
    assert (await look()).hung is False
    engine.pages["/health"] = (503, b"")
    down = await look(60)
    assert (down.hung, down.report.error) == (None, "/health: answered 503")
    engine.pages["/health"] = (200, b"")
    assert (await look(60)).hung is False


async def test_another_engine_under_the_name_begins_anew(look):
    assert (await look()).hung is False
    assert (await look(60, pool="long")).hung is False
