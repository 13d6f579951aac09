"""Engines' metrics pages as a gateway reads them, over real HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from gateway.engine_watch import EngineWatch, Held
from gateway.view import compile_view
from tests.wire.engine_pages.reading import page_of
from wire.snapshot import Engine, GatewaySnapshot, Model, Pool

INTERVAL_SECONDS, STALE_SECONDS = 0.02, 0.3
VLLM = page_of("vllm-0.32.0")


def vllm(running=0, waiting=0, used=0.0, capacity: int | None = 10_000, started: float | None = 1.0, rank=0) -> bytes:
    lines = [
        f'vllm:num_requests_running{{engine="{rank}"}} {running}',
        f'vllm:num_requests_waiting{{engine="{rank}"}} {waiting}',
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {used}',
    ]
    if capacity is not None:
        lines.append(f'vllm:cache_config_info{{engine="{rank}",kv_cache_size_tokens="{capacity}"}} 1')
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    return "\n".join([*lines, ""]).encode()


Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class PageServer:
    """An engine that has nothing but a metrics page; `answer` may take over."""

    def __init__(self, page: bytes = b"") -> None:
        self.page, self.status, self.headers = page, 200, {"Content-Type": "text/plain; version=0.0.4"}
        self.requests: list[web.BaseRequest] = []
        self.answer: Answer | None = None
        self.port = 0
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._runner = web.ServerRunner(
            web.Server(self._serve, access_log=None, handler_cancellation=True), shutdown_timeout=0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if self.answer is not None:
            return await self.answer(request)
        return web.Response(body=self.page, status=self.status, headers=self.headers)


@pytest.fixture
async def server():
    server = PageServer(vllm())
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def other():
    server = PageServer(vllm())
    await server.start()
    yield server
    await server.stop()


@asynccontextmanager
async def watching(*engines: Engine, stale_seconds: float = STALE_SECONDS):
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        watch = EngineWatch(http, lambda: time.monotonic_ns() // 1_000_000, INTERVAL_SECONDS, stale_seconds)
        watch.configure(view(*engines))
        try:
            yield watch
        finally:
            await watch.close()


def view(*engines: Engine):
    named = {f"e{number}": engine for number, engine in enumerate(engines)}
    return compile_view(GatewaySnapshot(1, models={"m": Model(9, 9, 9)}, pools={"main": Pool("m")}, engines=named), 1)


def engine(server: PageServer, kind="vllm", **fields) -> Engine:
    return Engine(server.url, kind, "main", "llama", **fields)


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not happened():  # noqa: ASYNC110 - the gateway tells nobody
            await asyncio.sleep(0.002)


async def next_look(watch: EngineWatch, name="e0"):
    """A look whose page was asked for from now on."""
    before = watch.look(name)
    await until(lambda: watch.look(name) is not before)
    between = watch.look(name)
    await until(lambda: watch.look(name) is not between)
    return watch.look(name)


async def failures(watch: EngineWatch, more: int = 2) -> None:
    """Until looks have failed so often."""
    before = watch.rows()[0].failures
    await until(lambda: watch.rows()[0].failures >= before + more)


async def test_a_real_vllm_page(server):
    server.page = VLLM
    async with watching(engine(server)) as watch:
        look = await next_look(watch)
        assert not watch.stale("e0")
    assert look[1:] == (0, 0, 0, 1_048_576, 0, 0)
    assert abs(look.at_ms - time.monotonic() * 1000) < 5_000
    assert [request.path for request in server.requests] == ["/metrics"] * len(server.requests)


@pytest.mark.parametrize(
    ("kind", "path", "told"),
    [
        ("sglang", "/metrics", True),
        ("trtllm", "/prometheus/metrics", True),
        ("tgi", "/metrics", False),
        ("llamacpp", "/metrics", False),
    ],
)
async def test_of_each_kind_what_it_tells(server, kind, path, told):
    server.page = page_of(kind)
    async with watching(engine(server, kind)) as watch:
        look = await next_look(watch)
    assert server.requests[0].path == path
    assert look.running is not None
    assert look.waiting is not None
    assert (look.kv_used_tokens is not None) == (look.kv_capacity_tokens is not None) == told


async def test_a_triton_tells_what_the_engine_in_it_bridges_and_is_not_stale_for_what_it_does_not(server):
    server.page = page_of("triton")
    async with watching(engine(server, "triton")) as watch:
        assert watch.stale("e0"), "that nothing is told is not known yet"
        look = await next_look(watch)
        assert (look.running, look.waiting, look.kv_used_tokens) == (None, 6, None)
        server.status = 500
        await until(lambda: watch.rows()[0].age_seconds > STALE_SECONDS)
        assert not watch.stale("e0")
        server.status, server.page = 200, vllm(2, 0, 0.5) + page_of("triton")
        await until(lambda: watch.look("e0").kv_used_tokens == 5_000)
        server.status = 500
        await until(lambda: watch.stale("e0"))


async def test_ranks_of_one_server_add_up(server):
    server.page = vllm(3, 1, 0.5, 10_000) + vllm(2, 0, 0.1, 30_000, started=None, rank=1)
    async with watching(engine(server)) as watch:
        look = await next_look(watch)
    assert (look.running, look.waiting, look.kv_used_tokens, look.kv_capacity_tokens) == (5, 1, 8_000, 40_000)


async def test_use_of_a_capacity_that_only_the_configuration_knows(server):
    server.page = vllm(1, 0, 0.25, capacity=None)
    async with watching(engine(server, kv_capacity_tokens=2_000)) as watch:
        look = await next_look(watch)
    assert (look.kv_used_tokens, look.kv_capacity_tokens) == (500, None)


async def test_an_engine_without_such_a_page_is_not_asked_and_never_stale(server):
    async with watching(engine(server, "ollama"), engine(server, "llamacpp")) as watch:
        await until(lambda: watch.rows() and watch.rows()[0].failures)
        assert watch.look("e0") is None
        assert not watch.stale("e0")
        assert not watch.stale("e1"), "it would not tell of its KV cache"
        assert not watch.stale("no-such-engine")
        assert [row.engine for row in watch.rows()] == ["e1"]


async def test_the_engines_key_is_sent_and_no_redirect_followed(server, other):
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": other.url})

    server.answer = redirect
    async with watching(engine(server, api_key="sk-engine")) as watch:
        await failures(watch)
    assert server.requests[0].headers["Authorization"] == "Bearer sk-engine"
    assert other.requests == []


async def test_what_began_or_ended_while_a_page_was_on_its_way_is_not_taken_for_ours(server):
    arrived, release = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        if arrived.is_set():
            # A second page would tell of another moment.
            await asyncio.sleep(60)
        arrived.set()
        await release.wait()
        return web.Response(body=vllm(), headers=server.headers)

    server.answer = slow
    async with watching(engine(server), stale_seconds=10) as watch:
        watch.held = lambda name: Held(700, 2)
        await arrived.wait()
        # Some began while the page was on its way, others ended.
        watch.held = lambda name: Held(100, 5)
        release.set()
        await until(lambda: watch.look("e0"))
        look = watch.look("e0")
    assert (look.own_reserved_tokens, look.own_sequences) == (100, 2), "what was on the page for sure"


async def test_an_engine_that_does_not_answer_delays_no_other_and_becomes_stale(server, other):
    async with watching(engine(server), engine(other)) as watch:
        await next_look(watch)

        async def silent(request: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        server.answer = silent
        asked = len(other.requests)
        await until(lambda: watch.stale("e0"))
        assert watch.look("e0") is not None, "the last one is kept"
        assert not watch.stale("e1")
        assert len(other.requests) - asked >= 3
        await failures(watch, 1)
        server.answer = None
        await until(lambda: not watch.stale("e0"))


async def test_one_that_hears_of_a_look_and_fails_does_not_end_the_watch(server):
    async with watching(engine(server)) as watch:

        def fail(name: str) -> None:
            raise RuntimeError(name)

        watch.on_look = fail
        await failures(watch)
        watch.on_look = lambda _: None
        await next_look(watch)


async def test_before_the_first_look_an_engine_is_stale(server):
    server.status = 404
    async with watching(engine(server)) as watch:
        assert watch.stale("e0")
        await failures(watch)
        assert watch.stale("e0")
        [row] = watch.rows()
        assert (row.pool, row.engine, row.age_seconds, row.others_tokens) == ("main", "e0", None, None)


BAD = {
    "not found": (404, b"nothing here\n", {}),
    "broken": (500, vllm(), {}),
    "not of this kind": (200, b"node_load1 0.5\n", {}),
    "a web page": (200, b"<html></html>", {"Content-Type": "text/html"}),
    "cut": (200, VLLM[:-1], {}),
    "rubbish": (200, b"vllm:num_requests_running{ 1e\n" + bytes(range(256)), {}),
    "too long": (200, b"# HELP x y\n" * 400_000, {}),
    "packed": (200, VLLM, {"Content-Encoding": "gzip"}),
    "of other models": (200, b"".join(b'vllm:num_requests_running{model_name="%d"} 1\n' % n for n in range(2)), {}),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_page_that_cannot_be_read_is_counted_said_once_and_survived(server, bad, caplog):
    async with watching(engine(server, api_key="sk-engine"), stale_seconds=5) as watch:
        look = await next_look(watch)
        server.status, server.page, headers = BAD[bad]
        server.headers |= headers
        await failures(watch, 3)
        assert watch.look("e0").at_ms >= look.at_ms
        server.status, server.page = 200, vllm(running=3)
        server.headers = {"Content-Type": "text/plain"}
        await until(lambda: watch.look("e0").running == 3)
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if text.startswith("engine e0: ")]) == 2, said
    assert str(server.port) not in caplog.text
    assert "127.0.0.1" not in caplog.text
    assert "sk-engine" not in caplog.text


async def test_a_restart_is_told_by_the_time_of_its_start(server):
    restarts: list[str] = []
    async with watching(engine(server)) as watch:
        watch.on_restart = restarts.append
        await next_look(watch)
        assert restarts == [], "that it was seen for the first time is none"
        server.page = vllm(started=2.0)
        await until(lambda: restarts)
        await next_look(watch)
        await next_look(watch)
    assert restarts == ["e0"]


@pytest.mark.parametrize("started", [None, 1.0], ids=["unknown", "the same"])
async def test_an_engine_that_was_away_is_taken_to_have_started_again_unless_it_says_otherwise(server, started):
    server.page = vllm(started=started)
    restarts: list[str] = []
    async with watching(engine(server), stale_seconds=5) as watch:
        watch.on_restart = restarts.append
        await next_look(watch)
        await server.stop()
        await failures(watch)
        await server.start()
        await next_look(watch)
        await next_look(watch)
    assert restarts == (["e0"] if started is None else [])


async def test_a_page_that_failed_for_a_while_is_no_restart(server):
    server.page = vllm(started=None)
    restarts: list[str] = []
    async with watching(engine(server)) as watch:
        watch.on_restart = restarts.append
        await next_look(watch)
        server.status = 503
        await failures(watch)
        server.status = 200
        await next_look(watch)
    assert restarts == []


async def test_engines_come_go_and_change_with_the_configuration(server, other):
    async with watching(engine(server), engine(other)) as watch:
        await until(lambda: watch.look("e0") and watch.look("e1"))
        kept = watch.look("e0")
        watch.configure(view(engine(server, cordoned=True, api_key="sk-new")))
        assert watch.look("e0") is kept, "it is the same engine"
        assert watch.look("e1") is None
        await next_look(watch)
        assert server.requests[-1].headers["Authorization"] == "Bearer sk-new"
        asked = len(other.requests)
        await next_look(watch)
        assert len(other.requests) - asked <= 1, "one may have been under way"
        watch.configure(view(engine(other)))
        assert watch.look("e0") is None, "another engine under the same name"
        await until(lambda: watch.look("e0"))


async def test_every_look_is_told(server):
    looks: list[str] = []
    async with watching(engine(server)) as watch:
        watch.on_look = looks.append
        await until(lambda: len(looks) >= 3)
    ended = len(looks)
    await asyncio.sleep(3 * INTERVAL_SECONDS)
    assert len(looks) == ended, "a watch that is closed looks no more"
