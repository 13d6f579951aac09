from __future__ import annotations

import asyncio
import struct
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent import telemetry as module
from gpu_agent.samples import Sample
from gpu_agent.telemetry import Telemetry
from tests.wire.fake_control import DEADLINE_SECONDS
from wire.write_body import STALE_BITS


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
    telemetry = pushing(push)
    task = asyncio.create_task(telemetry.run())
    yield telemetry
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def pushing(push):
    return Telemetry("node-1", push)


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
    telemetry.end("e2")
    body = await pushed(push, 2)
    assert stale(body[key("up", engine="e2")])
    assert len(body) == 1
    telemetry.end("e2")
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


def named(samples):
    return [Sample(name, dict(labels), 1.0, 0) for name, labels in samples]


def key_of(labels):
    own = {name: value for name, value in labels.items() if name not in ("__name__", "node")}
    return labels["__name__"], frozenset(own.items())


def is_end(series):
    return stale(series.samples[0])


_labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2).map(
    lambda labels: tuple(sorted(labels.items()))
)
_part = st.sampled_from(["gpus", "e1", "e2"])
_add = st.tuples(_part, st.lists(st.tuples(st.sampled_from(["up", "use"]), _labels), max_size=5))
_steps = st.lists(_add | _part | st.just("taken"), max_size=20)


class Played(NamedTuple):
    """What came of steps: the series that were given, those that live, and whether the last told of each is its end."""

    given: set[Any]
    living: set[Any]
    ended: dict[Any, bool]
    left: int


def played(steps: list[Any]) -> Played:
    telemetry, taken, given_ones = pushing(Push()), [], set()
    for step in steps:
        if step == "taken":
            taken += telemetry.waiting()
        elif isinstance(step, str):
            telemetry.end(step)
        else:
            part, series = step
            # Each part's own, as they are in the agent.
            own = [(name, (*labels, ("part", part))) for name, labels in series]
            telemetry.add(part, named(own))
            given_ones |= {(name, frozenset(labels)) for name, labels in own}
    left = telemetry.waiting()
    return Played(
        given=given_ones,
        living={key_of(labels) for part in telemetry.live() for labels in part.labels},
        ended={key_of(each.labels): is_end(each) for each in [*taken, *left]},
        left=len(left),
    )


@given(_steps, st.integers(1, 8))
def test_no_series_seems_to_go_on_however_little_is_kept_of_a_long_stall(steps, in_memory):
    """Between the bodies that are taken, most samples go; the end of a series that was taken never does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SERIES_IN_MEMORY", in_memory)
        end = played(steps)
    assert end.left <= in_memory + len(end.given)
    assert {series for series, has_ended in end.ended.items() if not has_ended} <= end.living
    assert end.living <= end.given


@given(_steps)
def test_every_series_that_was_given_lives_or_has_ended(steps):
    end = played(steps)
    assert end.ended.keys() == end.given
    assert {series for series, has_ended in end.ended.items() if not has_ended} == end.living


async def test_the_last_value_of_each_series_that_has_not_ended_is_kept(telemetry):
    telemetry.add("gpus", [Sample("use", {"gpu": "0"}, 5, 0), Sample("use", {"gpu": "1"}, 6, 0)])
    telemetry.add("e1", [Sample("up", {}, 1, 0)])
    telemetry.add("gpus", [Sample("use", {"gpu": "1"}, 7, 0)])
    telemetry.end("e1")
    (part,) = telemetry.live()
    assert [dict(labels) for labels in part.labels] == [{"__name__": "use", "node": "node-1", "gpu": "1"}]
    assert list(part.values) == [7]


async def test_of_a_series_that_is_given_twice_the_first_counts(telemetry, push):
    telemetry.add("gpus", [Sample("use", {}, 5, 0), Sample("use", {}, 6, 0), Sample("up", {}, 1, 0)])
    body = await pushed(push, 1)
    assert body[key("use")][1] == 5
    (part,) = telemetry.live()
    assert list(part.values) == [5, 1]


async def test_series_that_differ_in_a_labels_name_alone_are_two(telemetry, push):
    telemetry.add("e1", [Sample("use", {"a": "1"}, 5, 0), Sample("use", {"b": "1"}, 6, 0)])
    await pushed(push, 1)
    telemetry.add("e1", [Sample("use", {"b": "1"}, 6, 0)])
    body = await pushed(push, 2)
    assert stale(body[key("use", a="1")])
    assert not stale(body[key("use", b="1")])
