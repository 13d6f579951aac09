"""An engine that a script starts, and another stops."""

from __future__ import annotations

import os
import signal

import pytest

from gpu_agent.acts.outcome import NotDone
from gpu_agent.policy import EnginePolicy
from tests.gpu_agent.acts.works import node_engine, real_work, script
from tests.services import wait_for
from wire.acts import Start, Stop


def policy(unit, **changed):
    stop = script(unit.folder / "stop", f"echo stop >>{unit.folder}/stops; kill $(cat {unit.pid_file})")
    return EnginePolicy(**({"start_command": [str(unit.script)], "stop_command": [str(stop)]} | changed))


def end(unit):
    os.kill(int(unit.pid_file.read_text()), signal.SIGKILL)
    unit.pid_file.unlink()


async def test_an_engine_is_stopped_and_started_again(unit):
    expected = []
    engine = node_engine(unit.url, served_model="llama", cordoned=True)
    async with real_work(
        engine, policy(unit), expect_restart=lambda name, within: expected.append((name, within))
    ) as work:
        assert (await work.do(Stop(limit_seconds=30))).startswith("nobody listens at its port after ")
        assert (await work.work.look()).report.state == "down"
        unit.pid_file.unlink()
        assert (await work.do(Start(limit_seconds=30))).startswith("served after ")
        assert (await work.work.look()).report.state == "up"
    assert expected == [("e1", float("inf")), ("e1", 30)]


async def test_what_serves_already_is_not_started(unit):
    async with real_work(node_engine(unit.url), policy(unit)) as work:
        assert await work.do(Start()) == "it serves already"
    assert (unit.runs, work.kept) == (1, [])


async def test_an_engine_that_takes_requests_is_not_stopped(unit):
    async with real_work(node_engine(unit.url), policy(unit)) as work:
        with pytest.raises(NotDone, match="takes new requests") as end:
            await work.do(Stop())
    assert (end.value.state, end.value.reason, work.kept) == ("refused", "not_cordoned", [])


async def test_a_command_that_stops_nothing_is_told(unit):
    engine = node_engine(unit.url, cordoned=True)
    async with real_work(engine, policy(unit, stop_command=["/bin/true"])) as work:
        with pytest.raises(NotDone, match=f"port {unit.port} still answers 1 s after the stop command") as failure:
            await work.do(Stop(limit_seconds=1))
    assert failure.value.reason == "did_not_stop"


async def test_a_command_that_fails_says_its_last_words(unit):
    broken = script(unit.folder / "broken", "echo 'Unit not found'; exit 5")
    engine = node_engine("http://127.0.0.1:1", cordoned=True)
    async with real_work(engine, policy(unit, start_command=[str(broken)], stop_command=[str(broken)])) as work:
        for request, what in ((Start(), "start"), (Stop(), "stop")):
            with pytest.raises(NotDone, match=f"the {what} command ended with status 5, .*: Unit not found"):
                await work.do(request)


async def test_after_a_crash_neither_command_is_run_again(unit):
    """The former run of the agent began them; what it waited for is waited for."""
    engine = node_engine(unit.url)
    async with real_work(engine, policy(unit)) as work:
        assert (await work.going_on({"begun_ms": 1}).do(Start(limit_seconds=30))).startswith("served after ")
        end(unit)
        wait_for(lambda: not unit.pid_file.exists(), 5, "its end")
        # Out of the slice or uncordoned meanwhile: what was begun is gone on with.
        said = await work.going_on({"begun_ms": 1}).do(Stop(limit_seconds=30))
        assert said.startswith("nobody listens at its port")
    assert unit.runs == 1
    assert not (unit.folder / "stops").exists()


async def test_a_start_that_does_not_serve_in_time_says_what_lacks(unit):
    async with real_work(node_engine(), policy(unit, start_command=["/bin/true"])) as work:
        with pytest.raises(NotDone, match=r"does not serve 1 s after its start: .*Connection refused") as failure:
            await work.do(Start(limit_seconds=1))
    assert failure.value.reason == "did_not_serve"
