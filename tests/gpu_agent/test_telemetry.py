from __future__ import annotations

import asyncio
import struct
import time

import pytest

from gpu_agent.samples import Sample
from gpu_agent.telemetry import Telemetry
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.remote_write import STALE_BITS


class Push:
    """Takes what is pushed; `hold` keeps it waiting, as a control plane that stalls does."""

    def __init__(self):
        self.bodies = []
        self.asked = 0
        self.released = asyncio.Event()
        self.released.set()

    async def put(self, series):
        self.asked += 1
        await self.released.wait()
        self.bodies.append({tuple(sorted(each.labels.items())): each.samples[0] for each in series})


@pytest.fixture
async def push():
    return Push()


@pytest.fixture
async def telemetry(push):
    telemetry = Telemetry("node-1", push)
    task = asyncio.create_task(telemetry.run())
    yield telemetry
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():  # noqa: ASYNC110 - a body has no event
            await asyncio.sleep(0.001)


async def pushed(push, count):
    """The body of that number."""
    await until(lambda: len(push.bodies) >= count)
    return push.bodies[count - 1]


def key(name, **labels):
    return tuple(sorted({"__name__": name, "node": "node-1", **labels}.items()))


def stale(sample):
    return struct.unpack("<Q", struct.pack("<d", sample[1]))[0] == STALE_BITS


async def test_samples_go_out_with_their_node_and_time(telemetry, push):
    before_ms = int(time.time() * 1000)
    telemetry.add("gpus", [Sample("a", {"gpu": "0"}, 1.5, 123), Sample("b", {}, 2.0, 0)])
    body = await pushed(push, 1)
    assert body[key("a", gpu="0")] == (123, 1.5)
    assert before_ms <= body[key("b")][0] <= time.time() * 1000


async def test_parts_that_are_read_together_go_out_together(telemetry, push):
    telemetry.add("gpus", [Sample("a", {}, 1, 0)])
    await asyncio.sleep(0)
    telemetry.add("e1", [Sample("b", {}, 2, 0)])
    assert (await pushed(push, 1)).keys() == {key("a"), key("b")}


async def test_a_series_that_vanishes_ends_once_and_may_come_again(telemetry, push):
    telemetry.add("gpus", [Sample("up", {}, 1, 0), Sample("use", {}, 5, 0)])
    await pushed(push, 1)
    telemetry.add("gpus", [Sample("up", {}, 0, 0)])
    body = await pushed(push, 2)
    assert body[key("up")][1] == 0
    assert stale(body[key("use")])
    telemetry.add("gpus", [Sample("up", {}, 0, 0)])
    assert key("use") not in await pushed(push, 3)
    telemetry.add("gpus", [Sample("up", {}, 1, 0), Sample("use", {}, 6, 0)])
    assert (await pushed(push, 4))[key("use")][1] == 6


async def test_a_part_that_is_gone_ends_its_series_once(telemetry, push):
    for engine in ("e1", "e2"):
        telemetry.add(engine, [Sample("up", {"engine": engine}, 1, 0)])
    await pushed(push, 1)
    telemetry.keep_only({"e1", "e2"})
    telemetry.keep_only({"e1"})
    body = await pushed(push, 2)
    assert stale(body[key("up", engine="e2")])
    assert len(body) == 1
    telemetry.keep_only({"e1"})
    telemetry.add("e1", [Sample("up", {"engine": "e1"}, 1, 0)])
    assert (await pushed(push, 3)).keys() == {key("up", engine="e1")}


async def test_what_comes_while_a_push_stalls_goes_out_after_it(telemetry, push):
    push.released.clear()
    telemetry.add("e0", [Sample("n0", {}, 0, 0)])
    await until(lambda: push.asked == 1)
    for number in range(1, 5):
        telemetry.add(f"e{number}", [Sample(f"n{number}", {}, number, 0)])
    push.released.set()
    await pushed(push, 2)
    assert [value for body in push.bodies for _, value in body.values()] == [0, 1, 2, 3, 4]
