from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboards.shared import Shared

DEADLINE_SECONDS = 10


def test_fifty_who_ask_at_once_cost_one() -> None:
    shared: Shared[int] = Shared(4)
    made: list[int] = []
    all_there = threading.Barrier(50)

    def make() -> int:
        made.append(1)
        return 7

    def ask() -> int:
        all_there.wait(DEADLINE_SECONDS)
        return shared.get("a", make)

    with ThreadPoolExecutor(50) as people:
        assert [answer.result() for answer in [people.submit(ask) for _ in range(50)]] == [7] * 50
    assert len(made) == 1


def test_what_is_forgotten_is_made_anew() -> None:
    shared: Shared[int] = Shared(4)
    assert shared.get("a", lambda: 1) == 1
    shared.forget("a")
    shared.forget("never asked for")
    assert shared.get("a", lambda: 2) == 2


async def test_who_leaves_takes_the_value_from_nobody() -> None:
    shared: Shared[int] = Shared(4)
    may_end, has_begun = threading.Event(), threading.Event()

    def make() -> int:
        has_begun.set()
        assert may_end.wait(DEADLINE_SECONDS)
        return 7

    first = asyncio.create_task(shared.aget("a", make))
    await asyncio.to_thread(has_begun.wait, DEADLINE_SECONDS)
    second, third = (asyncio.create_task(shared.aget("a", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    may_end.set()
    assert await asyncio.wait_for(third, DEADLINE_SECONDS) == 7


def test_what_could_not_be_made_is_tried_anew() -> None:
    shared: Shared[int] = Shared(4)

    def fail() -> int:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        shared.get("a", fail)
    assert shared.get("a", lambda: 7) == 7


def test_the_oldest_values_go() -> None:
    shared: Shared[int] = Shared(2)
    for key in "abc":
        shared.get(key, lambda: 1)
    assert shared.get("c", lambda: 2) == 1
    assert shared.get("a", lambda: 2) == 2
