from __future__ import annotations

import asyncio

import pytest

from gpu_agent.nvml.door import NvmlDoor
from gpu_agent.nvml.release import Releases


class Held:
    """What a door holds open. `fails`: so many times at first."""

    def __init__(self, fails=0):
        self.fails, self.begun, self.closed, self.is_open = fails, 0, 0, asyncio.Event()

    async def hold_open(self):
        self.begun += 1
        if self.begun <= self.fails:
            raise RuntimeError("nobody thought of this")
        self.is_open.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_open.clear()

    async def when_closed(self):
        assert not self.is_open.is_set(), "told only once it is closed"
        self.closed += 1


@pytest.fixture
async def opened(tmp_path):
    doors = []

    def make(**given):
        held = Held(**given)
        door = NvmlDoor(Releases(tmp_path), hold_open=held.hold_open, closed=held.when_closed)
        door.start()
        doors.append(door)
        return door, held

    yield make
    for door in doors:
        await door.stop()


async def test_it_is_opened_closed_and_opened_again(opened):
    door, held = opened()
    async with asyncio.timeout(10):
        await held.is_open.wait()
        await door.close(60)
        assert (held.is_open.is_set(), held.closed) == (False, 1)
        await door.close(60)
        await door.reopen()
        await held.is_open.wait()
        await door.stop()
    assert (held.begun, held.is_open.is_set()) == (2, False)


async def test_many_at_once_that_close_and_reopen_it_leave_it_as_the_last_one_wants(opened):
    door, held = opened()
    async with asyncio.timeout(10):
        await held.is_open.wait()
        await asyncio.gather(*(door.close(60) if turn % 2 else door.reopen() for turn in range(20)))
        assert not held.is_open.is_set()
        await asyncio.gather(*(door.reopen() if turn % 2 else door.close(60) for turn in range(20)))
        await held.is_open.wait()


async def test_what_fails_as_nobody_thought_is_said_and_begun_anew(opened, caplog):
    _, held = opened(fails=1)
    async with asyncio.timeout(10):
        await held.is_open.wait()
    assert held.begun == 2
    assert "reading NVML failed, and is begun anew" in caplog.messages
    assert "nobody thought of this" in caplog.text


async def test_releases_are_obeyed_on_after_a_failure_that_nobody_foresaw(opened, monkeypatch):
    monkeypatch.setattr("gpu_agent.nvml.door._POLL_SECONDS", 0.01)
    now, failures = Releases.now, iter([RuntimeError("nobody thought of this")])

    def failing_once(releases):
        if failure := next(failures, None):
            raise failure
        return now(releases)

    monkeypatch.setattr(Releases, "now", failing_once)
    _, held = opened()
    async with asyncio.timeout(10):
        await held.is_open.wait()
