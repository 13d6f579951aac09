"""The live stream: once a change for all viewers, and nothing while nobody looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from controlplane.configs import publisher
from controlplane.core.models import Role, User
from controlplane.tenants import services
from controlplane.web import live
from controlplane.web.live import Board
from tests.services import wait_for
from tests.web.conftest import acknowledge, new_target, write

DEADLINE_SECONDS = 10


class Source:
    """What a board reads, and how often it did."""

    def __init__(self) -> None:
        self.value: Any = 1
        self.reads = 0
        self.ending = False
        self.unwatched = asyncio.Event()
        self._woken = asyncio.Event()

    def read(self) -> Any:
        self.reads += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        try:
            yield self._woken
        finally:
            self.unwatched.set()

    def change(self, value: Any) -> None:
        self.value = value
        self._woken.set()

    def end(self) -> None:
        self.ending = True
        self._woken.set()

    def board(self) -> Board:
        return Board(self.read, self.watch, lambda: self.ending)

    async def read_again(self) -> None:
        """Wake the board, and wait until it has taken what it read before and reads once more."""
        reads = self.reads
        self._woken.set()
        await until(lambda: self.reads > reads)


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, condition, DEADLINE_SECONDS, "the board", poll_s=0.005)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "GATHER_SECONDS", 0.0)


def _event(value: object) -> bytes:
    return b"event: convergence\ndata: " + json.dumps(value).encode() + b"\n\n"


async def test_fifty_viewers_cost_one_read_a_change(quick: None) -> None:
    source = Source()
    board = source.board()

    async def view(seen_first: asyncio.Barrier) -> list[bytes | None]:
        async with board.viewed():
            first = await board.after(b"", DEADLINE_SECONDS)
            await seen_first.wait()
            return [first, await board.after(first or b"", DEADLINE_SECONDS)]

    barrier = asyncio.Barrier(51)
    viewers = [asyncio.create_task(view(barrier)) for _ in range(50)]
    async with asyncio.timeout(DEADLINE_SECONDS):
        await barrier.wait()
        source.change(2)
        assert await asyncio.gather(*viewers) == [[_event(1), _event(2)]] * 50
    assert source.reads == 2


async def test_nothing_is_read_once_the_last_viewer_has_gone(quick: None) -> None:
    source = Source()
    board = source.board()
    for _ in range(2):
        async with board.viewed():
            assert await board.after(b"", DEADLINE_SECONDS) == _event(1)
        await asyncio.wait_for(source.unwatched.wait(), DEADLINE_SECONDS)
        source.unwatched.clear()
    assert source.reads == 2


async def test_what_did_not_change_is_not_told_again(quick: None) -> None:
    source = Source()
    board = source.board()
    async with board.viewed():
        first = await board.after(b"", DEADLINE_SECONDS)
        source.change(1)
        await until(lambda: source.reads == 2)
        await source.read_again()
        assert await board.after(first or b"", 0) is None


async def test_a_read_that_fails_leaves_the_stream_and_the_next_one_is_told(
    quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    board = source.board()
    async with board.viewed():
        first = await board.after(b"", DEADLINE_SECONDS)
        source.change(RuntimeError("the database is away"))
        await until(lambda: "the database is away" in caplog.text)
        assert await board.after(first or b"", 0) is None
        source.change(3)
        assert await board.after(first or b"", DEADLINE_SECONDS) == _event(3)


async def test_nobody_waits_longer_once_the_process_is_about_to_end(quick: None) -> None:
    source = Source()
    board = source.board()
    async with board.viewed():
        first = await board.after(b"", DEADLINE_SECONDS)
        waiting = asyncio.create_task(board.after(first or b"", 10 * DEADLINE_SECONDS))
        await asyncio.sleep(0)
        source.end()
        assert await asyncio.wait_for(waiting, DEADLINE_SECONDS) is None
        # Nor does one that comes only now.
        assert await asyncio.wait_for(board.after(b"", 10 * DEADLINE_SECONDS), DEADLINE_SECONDS) is None


@pytest.mark.django_db(transaction=True)
async def test_a_stream_tells_where_the_targets_stand(acme_published: Callable[[], None]) -> None:
    await sync_to_async(acme_published)()
    person = await User.objects.acreate(username="vera", role=Role.VIEWER)
    client = AsyncClient()
    await client.aforce_login(person)
    answer: Any = await client.get("/live")
    assert answer["Content-Type"] == "text/event-stream"
    assert answer["Cache-Control"] == "no-store"
    stream = answer.streaming_content
    assert await anext(stream) == b"retry: 500\n\n"
    async with asyncio.timeout(DEADLINE_SECONDS):
        told = (await anext(stream)).decode()
    await stream.aclose()
    assert told.startswith("event: convergence\n")
    assert json.loads(told.partition("data: ")[2]) == {
        "revision": 1,
        "applied": 1,
        "targets": 2,
        "look": "partial",
        "firing": 0,
        "acknowledged": 1,
    }


@pytest.mark.django_db(transaction=True)
async def test_a_log_in_that_has_ended_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0)
    monkeypatch.setattr(live, "PING_SECONDS", 0.05)
    person = await User.objects.acreate(username="vera", role=Role.VIEWER)
    client = AsyncClient()
    await client.aforce_login(person)
    answer: Any = await client.get("/live")
    stream = answer.streaming_content
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await anext(stream) == b"retry: 500\n\n"
        assert await anext(stream)
        await client.alogout()
        assert [event async for event in stream] == []


@pytest.fixture
def acme_published() -> Callable[[], None]:
    def make() -> None:
        write(lambda unit: services.create(unit, "acme", {}))
        first, _second = new_target("gateway", "edge-1"), new_target("gateway", "edge-2")
        publisher.publish()
        acknowledge(first)

    return make


@pytest.mark.django_db(transaction=True)
async def test_a_stranger_gets_no_stream() -> None:
    answer: Any = await AsyncClient().get("/live")
    assert answer.status_code == 401
    assert not answer.streaming
