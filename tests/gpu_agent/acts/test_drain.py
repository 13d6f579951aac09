from __future__ import annotations

import pytest
from msgspec import UNSET

from gpu_agent.acts.drain import drain
from gpu_agent.acts.outcome import NotDone
from gpu_agent.acts.tools import EngineWork
from gpu_agent.engines.look import Look
from tests.gpu_agent.acts.works import NO_POLICY, PAST, node_engine, tools
from wire.acts import Drain
from wire.engine_pages.numbers import Reading
from wire.messages import EngineReport


def up(*, error=UNSET, **numbers):
    readings = [Reading(f"requests_{name}", (), float(value)) for name, value in numbers.items()]
    return Look(EngineReport("e1", "up", error=error), PAST, readings)


DOWN = Look(EngineReport("e1", "down", error="/health: no answer in time"), PAST)


def work(*looks, cordoned=True):
    """The last look holds for ever."""
    left = list(looks)

    async def look(name, engine):
        return left.pop(0) if len(left) > 1 else left[0]

    engine = node_engine(cordoned=cordoned)

    async def keep(kept):
        raise AssertionError("a drain has nothing to go on with")

    return EngineWork("e1", engine, NO_POLICY, {}, keep, tools(look=look)), left


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("gpu_agent.acts.drain._POLL_SECONDS", 0.01)


async def test_it_ends_when_two_looks_in_a_row_find_nothing():
    draining, left = work(
        up(running=3, waiting=1), up(running=0, waiting=0), up(running=0, waiting=1), DOWN, up(running=0, waiting=0),
        up(running=0, waiting=0), up(running=9),
    )  # fmt: skip
    assert await drain(draining, Drain(limit_seconds=20)) == "no request is running or waiting"
    assert len(left) == 1


async def test_an_engine_that_takes_new_requests_is_refused():
    draining, left = work(up(running=0), cordoned=False)
    with pytest.raises(NotDone) as refused:
        await drain(draining, Drain())
    assert (refused.value.state, refused.value.reason, len(left)) == ("refused", "not_cordoned", 1)


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (up(running=2, waiting=1), "after 1 s 2 requests run and 1 wait"),
        (DOWN, "after 1 s it is down: /health: no answer in time"),
    ],
)
async def test_when_its_time_is_over_it_says_what_is_left(look, said):
    draining, _ = work(look)
    with pytest.raises(NotDone) as late:
        await drain(draining, Drain(limit_seconds=1))
    assert (late.value.state, late.value.reason, late.value.detail) == ("failed", "timeout", said)


@pytest.mark.parametrize("look", [up(error="/metrics: answered 404"), up(waiting=0)])
async def test_an_engine_that_does_not_say_what_runs_is_not_taken_for_empty(look):
    draining, _ = work(look)
    with pytest.raises(NotDone) as unknown:
        await drain(draining, Drain())
    assert unknown.value.reason == "unknown_load"
    assert str(look.report.error or "no such series") in unknown.value.detail


async def test_an_engine_that_counts_nothing_that_waits_is_empty_when_nothing_runs():
    draining, _ = work(up(running=1), up(running=0))
    assert await drain(draining, Drain(limit_seconds=20)) == "no request is running or waiting"
