from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from gateway.measure.fair_thread import FairThread


class Work:
    """Work that is done in the order in which it is written down; the first piece lasts until `go`."""

    def __init__(self) -> None:
        self.thread = FairThread("test")
        self.done: list[str] = []
        self.go = threading.Event()

    async def begin(self) -> asyncio.Task[bool]:
        first = asyncio.ensure_future(self.thread.run("first", self.go.wait, 10))
        await asyncio.sleep(0)
        return first

    def ask(self, owner: str, name: str) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.thread.run(owner, self.done.append, name))


@pytest.fixture
async def work() -> AsyncIterator[Work]:
    work = Work()
    yield work
    work.go.set()
    work.thread.close()


async def test_owners_take_turns_and_each_has_its_own_order(work: Work):
    first = await work.begin()
    tasks = [work.ask("a", f"a{number}") for number in range(4)] + [work.ask("b", f"b{number}") for number in range(2)]
    await asyncio.sleep(0)
    work.go.set()
    await asyncio.gather(first, *tasks)
    assert work.done == ["a0", "b0", "a1", "b1", "a2", "a3"]


async def test_what_is_given_up_while_it_waits_is_not_done_and_holds_nobody_up(work: Work):
    first = await work.begin()
    left, stays = work.ask("a", "left"), work.ask("b", "stays")
    await asyncio.sleep(0)
    left.cancel()
    work.go.set()
    await asyncio.gather(first, stays)
    assert left.cancelled()
    assert work.done == ["stays"]


async def test_a_turn_that_comes_as_its_owner_leaves_goes_to_the_next_one(work: Work):
    async def first() -> None:
        await work.thread.run("first", work.go.wait, 10)
        # The turn has been handed on just now, and its owner has not woken up yet.
        left.cancel()

    begun = asyncio.ensure_future(first())
    await asyncio.sleep(0)
    left, stays = work.ask("a", "left"), work.ask("b", "stays")
    await asyncio.sleep(0)
    work.go.set()
    await asyncio.wait_for(asyncio.gather(begun, stays), 10)
    assert left.cancelled()
    assert work.done == ["stays"]
    assert await asyncio.wait_for(work.thread.run("c", lambda: 7), 10) == 7


async def test_an_error_is_the_askers_and_the_next_one_has_its_turn(work: Work):
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await work.thread.run("a", fail)
    assert await work.thread.run("a", lambda: 7) == 7
