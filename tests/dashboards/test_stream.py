"""The live stream: what came since the last event, once for all viewers, and only for who is logged in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import AsyncClient

from controlplane.core.models import Role, User
from controlplane.fleet.models import Engine, Model, Node, Pool
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.live import Board
from controlplane.web.shown.marks import Mark, Marks
from dashboards import asked, marks, readings, stream
from dashboards.asked import Asked
from dashboards.spans import SETTLE_MS, SPANS
from tests.controlplane.telemetry.filling import named, store

DEADLINE_SECONDS = 20
SPAN = SPANS["15m"]
# On the steps of every span.
NOON_MS = 1_764_504_000_000
LIVE = "/dashboards/live"


class Process:
    """Stands for the hub, whose end the test chooses, for what all pages are told, and for the clock."""

    def __init__(self, wait: Callable[[bytes, Asked], Awaitable[bytes | None]]) -> None:
        self.wait = wait
        self.draining = False
        self.now_ms = NOON_MS + SETTLE_MS
        self.woken = asyncio.Event()
        self.state: object = 1
        self.board = Board(lambda: self.state, self.watch, lambda: self.draining)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        yield self.woken

    def end(self) -> None:
        self.draining = True
        self.woken.set()

    def tell(self, state: object) -> None:
        self.state = state
        self.woken.set()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process(stream._wait)
    monkeypatch.setattr(stream, "board", process.board)
    # At each turn.
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0)
    for module in (stream, asked):
        monkeypatch.setattr(module, "now_ms", lambda: process.now_ms)
    # The clock stands still, so a wait would not end.

    async def wait(told: bytes, _asked: Asked) -> bytes | None:
        return await process.board.after(told, 0.005)

    monkeypatch.setattr(stream, "_wait", wait)
    return process


@pytest.fixture
async def client(transactional_db: None) -> AsyncIterator[AsyncClient]:
    client = AsyncClient()
    await client.aforce_login(await User.objects.acreate(username="vera", role=Role.VIEWER))
    yield client
    # Of the thread that the test's own look at the database ran in.
    await sync_to_async(connections.close_all)()


class Viewer:
    """One open stream."""

    def __init__(self, answer: Any) -> None:
        assert answer.status_code == 200
        assert answer["Content-Type"] == "text/event-stream"
        assert answer["Cache-Control"] == "no-store"
        self._chunks = answer.streaming_content

    async def next_points(self) -> tuple[int, Any]:
        """Id and data of the next event; what keeps the stream open is passed over."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for chunk in self._chunks:
                if chunk.startswith(b"id: "):
                    head, _, data = chunk.decode().partition("\nevent: points\ndata: ")
                    return int(head.removeprefix("id: ")), json.loads(data)
        raise AssertionError("the stream ended")

    async def next_of(self, kind: str) -> Any:
        """Data of the next event of a kind."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for chunk in self._chunks:
                head, _, data = chunk.decode().partition("\ndata: ")
                if head.endswith(f"event: {kind}"):
                    return json.loads(data)
        raise AssertionError("the stream ended")

    async def ended(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for _chunk in self._chunks:
                pass

    async def close(self) -> None:
        await self._chunks.aclose()


async def test_a_stranger_gets_no_stream(transactional_db: None) -> None:
    answer: Any = await AsyncClient().get(LIVE)
    assert answer.status_code == 401
    assert not answer.streaming


async def test_each_point_is_sent_once_and_none_is_left_out(process: Process, client: AsyncClient) -> None:
    viewer = Viewer(await client.get(f"{LIVE}?span=15m&after={NOON_MS - 20_000}"))
    moment, points = await viewer.next_points()
    assert (moment, points["times"]) == (NOON_MS, list(range(NOON_MS - 15_000, NOON_MS + 1, 5_000)))
    process.now_ms += 10_000
    moment, points = await viewer.next_points()
    assert (moment, points["times"]) == (NOON_MS + 10_000, [NOON_MS + 5_000, NOON_MS + 10_000])
    await viewer.close()


async def test_a_browser_that_comes_back_goes_on_after_the_last_event_that_it_saw(
    process: Process, client: AsyncClient
) -> None:
    last_seen = {"Last-Event-ID": str(NOON_MS - 10_000)}
    viewer = Viewer(await client.get(LIVE, {"after": NOON_MS - 600_000}, headers=last_seen))
    _moment, points = await viewer.next_points()
    assert points["times"] == [NOON_MS - 5_000, NOON_MS]
    await viewer.close()


@pytest.mark.parametrize("after", ["", "-1", "0", "soon", "9" * 400, "1.5", str(NOON_MS - 10**10)])
async def test_no_more_than_the_span_is_sent_whatever_is_asked(
    process: Process, client: AsyncClient, after: str
) -> None:
    viewer = Viewer(await client.get(LIVE, {"after": after}))
    _moment, points = await viewer.next_points()
    assert (points["times"][0], len(points["times"])) == (NOON_MS - 900_000, SPAN.points)
    await viewer.close()


@pytest.mark.parametrize("chosen", ["node=n-2", "pool=chat"])
async def test_the_points_are_those_of_the_store_and_of_what_was_chosen(
    process: Process, client: AsyncClient, chosen: str
) -> None:
    def fill() -> None:
        model = Model.objects.create(name="llama", max_context_tokens=4096)
        pool, node = Pool.objects.create(name="chat", model=model), Node.objects.create(name="n-2")
        Engine.objects.create(name="e", node=node, pool=pool, url="http://h:1", served_model="llama")
        samples = [(NOON_MS - 3_000, 61.0)]
        hot = [named("DCGM_FI_DEV_GPU_TEMP", samples, node=node, gpu="0") for node in ("n-1", "n-2")]
        store(store_path(), hot, Owner("node", "n-1"))

    await sync_to_async(fill)()
    viewer = Viewer(await client.get(f"{LIVE}?layer=engines&after={NOON_MS - 10_000}&{chosen}"))
    _moment, points = await viewer.next_points()
    assert points["lines"]["temperature"] == {"n-2|drawn": {"y": [None, 61.0], "notes": ["–", "61"]}}
    await viewer.close()


async def test_fifty_viewers_cost_one_reading(
    process: Process, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    original = readings.read

    def counted(*arguments: Any) -> Any:
        read.append(arguments[3:5])
        return original(*arguments)

    monkeypatch.setattr(readings, "read", counted)
    viewers = [Viewer(await client.get(LIVE, {"after": NOON_MS - 5_000})) for _ in range(50)]
    told = await asyncio.gather(*(viewer.next_points() for viewer in viewers))
    assert {moment for moment, _points in told} == {NOON_MS}
    assert read == [(NOON_MS, NOON_MS)]
    # Nor does a stream hold a database connection: there are far fewer than viewers.
    assert await User.objects.acount() == 1
    for viewer in viewers:
        await viewer.close()


async def test_a_session_that_ends_closes_its_stream(process: Process, client: AsyncClient) -> None:
    viewer = Viewer(await client.get(LIVE))
    await viewer.next_points()
    await Session.objects.all().adelete()
    await viewer.ended()


@pytest.mark.parametrize("change", ["deactivated", "another password"])
async def test_a_person_who_is_shut_out_loses_the_stream(process: Process, client: AsyncClient, change: str) -> None:
    viewer = Viewer(await client.get(LIVE))
    await viewer.next_points()
    vera = await User.objects.aget(username="vera")
    if change == "deactivated":
        vera.is_active = False
    else:
        vera.set_password("another horse battery")
    await vera.asave()
    await viewer.ended()


async def test_the_end_of_the_process_closes_streams(process: Process, client: AsyncClient) -> None:
    viewer = Viewer(await client.get(LIVE))
    await viewer.next_points()
    process.end()
    await viewer.ended()


async def test_no_wait_outlasts_the_process(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 60)
    async with process.board.viewed():
        told = await process.wait(b"", Asked())
        # Nothing else would end it.
        waiting = asyncio.ensure_future(process.wait(told or b"", Asked()))
        await asyncio.sleep(0)
        assert not waiting.done()
        process.end()
        assert await asyncio.wait_for(waiting, 4) is None


async def test_a_wait_ends_when_the_next_point_may_be_there(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 60)
    async with process.board.viewed():
        told = await process.wait(b"", Asked(SPAN))
        process.now_ms = SPAN.next_at_ms(process.now_ms) - 20
        assert await asyncio.wait_for(process.wait(told or b"", Asked(SPAN)), 4) is None


async def test_the_same_stream_tells_what_all_pages_are_told(process: Process, client: AsyncClient) -> None:
    viewer = Viewer(await client.get(LIVE, {"after": NOON_MS}))
    assert await viewer.next_of("convergence") == 1
    process.tell(2)
    assert await viewer.next_of("convergence") == 2
    await viewer.close()


async def test_a_stream_tells_new_marks(process: Process, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Mark] = []
    monkeypatch.setattr(marks, "between", lambda *_times: Marks(list(found), frozenset()))
    viewer = Viewer(await client.get(f"{LIVE}?after={NOON_MS}&node=n-1"))
    await viewer.next_of("convergence")
    found += [
        Mark(f"cordon-{node}", NOON_MS, "cordon", "cordoned", node, "/", labels={"node": (node,)})
        for node in ("n-1", "n-2")
    ]
    process.now_ms += marks.STEP_MS
    assert [mark["id"] for mark in await viewer.next_of("marks")] == ["cordon-n-1"]
    await viewer.close()
