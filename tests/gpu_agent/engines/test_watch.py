from __future__ import annotations

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.probes import ProbeOptions, Probes
from gpu_agent.engines.watch import EngineWatch
from gpu_agent.policy import NodePolicy
from tests.gpu_agent.fake_engine import fake_engine
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.snapshot import NodeEngine


@pytest.fixture
def seen():
    """Reports of looks that have ended, by engine."""
    return {}


def watching(on_look, told=None, **options):
    """A watch without probes. `told`: takes each event as (engine, kind, severity, detail)."""
    pages = EnginePages(timeout_seconds=2, limit_bytes=2**20)
    told = [] if told is None else told
    tell = lambda name, one: told.append((name, *one))  # noqa: E731
    probes = Probes(pages, tell, EngineKeys(NodePolicy()), ProbeOptions(0, 0, 1))
    return EngineWatch(pages, on_look, tell, probes, hung_seconds=60, wanted=Wanted(), **options)


@pytest.fixture
async def watch(seen):
    watch = watching(lambda engine, look: seen.setdefault(look.report.name, []).append(look.report))
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
    assert sorted(request.path for request in hung.requests) == ["/health", "/is_paused"], "one look at a time"


async def test_an_engine_that_is_gone_or_another_is_not_told_of(watch, engine, hung, seen):
    watch.look({"e1": vllm(hung), "e2": vllm(hung)})
    await until(lambda: len(hung.requests) == 4)
    watch.look({"e1": vllm(engine), "e3": vllm(hung)})
    await until(lambda: "e3" in seen)
    assert [report.state for report in seen["e1"]] == ["up"]
    assert "e2" not in seen, "its look would have ended before that at e3"


async def test_a_look_that_fails_by_itself_is_said_and_the_others_go_on(watch, engine, seen, monkeypatch):
    async def failing(pages, name, chosen, wanted):
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
def told():
    return []


@pytest.fixture
def ended():
    """Looks, as they end."""
    return asyncio.Queue()


@pytest.fixture
async def watch_of_look(ended, clock, told):
    watch = watching(lambda _, look: ended.put_nowait(look), told, clock=lambda: clock[0])
    yield watch
    await watch.stop()


@pytest.fixture
def look(engine, clock, ended, watch_of_look):
    """One look at the engine, so many seconds after the last; its page says what the test wants of it."""

    async def look(passed_seconds=10, *, tokens=5, running=1, **changed):
        clock[0] += passed_seconds
        page = f"vllm:num_requests_running {running}\nvllm:iteration_tokens_total_count {tokens}\n"
        engine.pages["/metrics"] = (200, page.encode() if tokens is not None else b"no page\n")
        watch_of_look.look({"e1": msgspec.structs.replace(vllm(engine), **changed)})
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await ended.get()

    return look


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
    assert (await look(15)).hung is False
    assert (await look(15)).hung is True


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


async def test_a_cordon_makes_no_other_engine_of_it(look, told):
    assert (await look()).hung is False
    assert (await look(30, cordoned=True)).hung is False
    assert (await look(30, cordoned=True)).hung is True
    assert (await look(10, cordoned=False, tokens=6)).hung is False
    assert [kind for _, kind, *_ in told] == ["engine_hung", "engine_up"]


# What vLLM says of itself in its development mode.


async def test_a_paused_engine_is_told_of_and_is_not_hung_however_long_its_requests_stand(look, engine, told):
    engine.pages["/is_paused"] = (200, b'{"is_paused":false}')
    assert (await look()).report.condition == "ok"
    engine.pages["/is_paused"] = (200, b'{"is_paused":true}')
    paused = [await look(50) for _ in range(4)]
    assert [(each.report.condition, each.hung) for each in paused] == [("paused", False)] * 4
    engine.pages["/is_paused"] = (200, b'{"is_paused":false}')
    resumed = await look(1)
    assert (resumed.report.condition, resumed.hung) == ("ok", False), "it has all its time to begin again"
    assert told == [
        (
            "e1",
            "engine_paused",
            "warning",
            "engine e1 (vllm, pool short) is paused: it takes requests and computes nothing",
        ),
        ("e1", "engine_up", "info", "engine e1 (vllm) goes on"),
    ]


async def test_an_engine_that_does_not_say_whether_it_is_paused_is_as_it_was(look, engine):
    engine.pages["/is_paused"] = (200, b'{"is_paused":true}')
    assert (await look()).report.condition == "paused"
    for page in (503, b""), (200, b"<html>"), (200, b'{"is_paused":1}'):
        engine.pages["/is_paused"] = page
        assert (await look()).report.condition == "paused"


async def test_an_engine_that_has_no_development_mode_any_more_is_paused_no_longer(look, engine):
    engine.pages["/is_paused"] = (200, b'{"is_paused":true}')
    assert (await look()).report.condition == "paused"
    del engine.pages["/is_paused"]
    assert [(await look()).report.condition for _ in range(2)] == ["ok", "ok"]


async def test_a_hung_core_that_does_not_say_so_holds_the_look_no_longer_than_its_time(look, engine, clock):
    engine.hung.add("/is_paused")
    assert [(await look(30)).report.condition for _ in range(3)] == ["ok", "ok", "hung"]


class _Slow(BaseHTTPRequestHandler):
    """An engine beside this process, whose every answer takes a while."""

    begun = threading.Event()

    def do_GET(self):
        self.begun.set()
        time.sleep(0.1)
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


async def test_an_agent_that_stood_still_while_an_answer_came_calls_no_engine_down(seen):
    """Stopped, or suspended with its machine: of the look that was under way only its deadline is left."""
    told: list[Any] = []
    watch = watching(lambda engine, look: seen.setdefault(look.report.name, []).append(look.report), told)
    watch._pages._timeout_seconds = 0.5
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        watch.look({"e1": NodeEngine(f"http://127.0.0.1:{server.server_port}", "vllm", "short", "llama")})
        await until(_Slow.begun.is_set)
        time.sleep(2)  # noqa: ASYNC251 - that is what is tested
        await until(lambda: "e1" in seen)
    finally:
        await watch.stop()
        server.shutdown()
        server.server_close()
    assert [report.state for report in seen["e1"]] == ["up"]
    assert told == []


async def test_outside_of_development_mode_it_is_asked_once_a_run(look, engine):
    def asked():
        return [request.path for request in engine.requests].count("/is_paused")

    await look()
    await look()
    assert asked() == 1
    restarted = await look(tokens=1)
    assert restarted.restarts == 1
    await look(tokens=2)
    assert asked() == 2, "it may have been started in another mode"


async def test_an_engine_of_another_kind_is_not_asked(look, engine):
    await look(kind="sglang")
    assert "/is_paused" not in {request.path for request in engine.requests}


async def test_restarts_are_told_by_who_asked_for_them(look, told, watch_of_look):
    await look(tokens=5)
    await look(tokens=1)
    watch_of_look.expect_restart("e1", 100)
    await look(99, tokens=0)
    await look(tokens=4)
    watch_of_look.expect_restart("e1", 100)
    last = await look(101, tokens=1)
    assert last.restarts == 3
    assert [(kind, severity) for _, kind, severity, _ in told] == [
        ("engine_restarted", "warning"),
        ("engine_restarted", "info"),
        ("engine_restarted", "warning"),
    ]
