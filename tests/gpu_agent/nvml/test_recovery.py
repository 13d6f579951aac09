"""NVML that fails, hangs, dies or is loaded anew, and that the agent recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from gpu_agent.nvml.process import NvmlChild
from gpu_agent.nvml.reader import NvmlReader
from simulator.gpu import fault
from tests.gpu_agent.nvml.polling import INTERVAL_SECONDS, read_until, states

HEALTHY = ["ok", "ok", "ok"]


async def test_one_hung_gpu_turns_unresponsive_in_time_while_the_others_go_on_and_recovers(
    collect, state, source_options
):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three healthy GPUs")
    with state.change() as machine:
        fault.hang(machine, 1)
        machine.gpus[2].values["temperature_celsius"] = 55
    loop = asyncio.get_running_loop()
    hung_at = loop.time()
    readings = await read_until(watched, lambda now: states(now)[1] == "unresponsive", "GPU 1 to be unresponsive")
    # Three intervals, and what a reading itself may take on a busy machine.
    assert loop.time() - hung_at < 3 * INTERVAL_SECONDS + 3
    assert readings.gpus[1].fields == {}
    assert states(readings) == ["ok", "unresponsive", "ok"]
    assert readings.gpus[2].fields["temperature_celsius"] == 55
    assert [(event.kind, event.subject) for event in watched.events] == [
        ("gpu_unresponsive", readings.gpus[1].identity.uuid)
    ]
    pid = watched.collector.nvml.child_pid
    with state.change() as machine:
        fault.recover(machine, 1)
    readings = await read_until(watched, lambda now: states(now) == HEALTHY, "GPU 1 to answer again")
    assert readings.gpus[1].fields["temperature_celsius"] == 30
    assert watched.kinds() == ["gpu_unresponsive", "gpu_recovered"]
    assert watched.collector.nvml.child_pid == pid


async def test_nvml_that_fails_to_open_is_an_event_and_is_tried_again(collect, state, source_options):
    with state.change() as machine:
        machine.init_result = 18
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    assert (readings.source, readings.gpus) == ("simulated" if not source_options["library"] else "nvml", [])
    assert readings.problems[0] == "RM has detected an NVML/RM version mismatch."
    assert [(event.kind, event.severity) for event in watched.events] == [("nvml_failed", "critical")]
    with state.change() as machine:
        machine.init_result = 0
    await read_until(watched, lambda now: states(now) == HEALTHY, "NVML to open")
    assert watched.kinds() == ["nvml_failed", "nvml_recovered"]


async def test_nvml_that_hangs_while_it_opens_is_given_up_and_tried_again(collect, state, source_options):
    with state.change() as machine:
        machine.init_hangs = True
    watched = await collect(**source_options, open_seconds=1)
    assert (await watched.collector.read()).problems[0] == "NVML did not open within 1 s"
    with state.change() as machine:
        machine.init_hangs = False
    await read_until(watched, lambda now: states(now) == HEALTHY, "NVML to open")


async def test_nvml_that_hangs_as_a_whole_is_replaced(collect, state, source_options):
    watched = await collect(**source_options)
    pid = watched.collector.nvml.child_pid
    with state.change() as machine:
        for index in range(3):
            fault.hang(machine, index)
    await read_until(watched, lambda now: "NVML is unresponsive: no GPU answers" in now.problems, "NVML to be given up")
    assert states(await watched.collector.read()) == ["unresponsive"] * 3
    assert watched.kinds() == [*["gpu_unresponsive"] * 3, "nvml_failed"]
    with state.change() as machine:
        for index in range(3):
            fault.recover(machine, index)
    await read_until(watched, lambda now: states(now) == HEALTHY, "a new child's answers")
    assert watched.kinds()[4:] == ["nvml_recovered", *["gpu_recovered"] * 3]
    assert watched.collector.nvml.child_pid != pid


async def test_a_child_that_is_killed_is_replaced_before_its_values_grow_old(collect, state, source_options):
    # Values stand for three intervals: long enough for a new process, whose start takes a moment.
    watched = await collect(**source_options, interval_seconds=10)
    pid = watched.collector.nvml.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def replaced(readings):
        assert states(readings) == HEALTHY
        return watched.kinds() == ["nvml_failed", "nvml_recovered"]

    await read_until(watched, replaced, "a new child")
    assert "exit status -9" in watched.events[0].detail
    assert watched.events[0].severity == "warning"
    assert watched.collector.nvml.child_pid not in (None, pid)


async def test_children_that_cannot_be_killed_are_left_alone_and_no_third_is_started(
    collect, state, source_options, monkeypatch
):
    # What SIGKILL does to a process that is stuck in the driver: nothing.
    monkeypatch.setattr(NvmlReader, "_end", lambda self, child: stuck.append(child))
    stuck: list[NvmlChild] = []
    with state.change() as machine:
        machine.init_hangs = True
    try:
        watched = await collect(**source_options, open_seconds=0.5)
        said = "2 processes hang in the driver and cannot be ended; waiting for one to go"
        await read_until(watched, lambda now: said in now.problems, "the second leftover")
        assert len(stuck) == 2
        with state.change() as machine:
            machine.init_hangs = False
        stuck[0].kill()
        await read_until(watched, lambda now: states(now) == HEALTHY, "a child once one is gone")
    finally:
        await watched.collector.stop()
        for child in stuck:
            child.kill()
            assert await child.ended(10)


async def test_nvml_is_opened_afresh_while_a_gpu_is_lost_since_drivers_show_a_reset_gpu_to_new_clients_only(
    collect, state, source_options
):
    watched = await collect(**source_options)
    pid = watched.collector.nvml.child_pid
    with state.change() as machine:
        fault.lose(machine, 0)
    await read_until(watched, lambda now: watched.collector.nvml.child_pid not in (None, pid), "another child")
    await read_until(watched, lambda now: states(now) == ["lost", "ok", "ok"], "its answers")
    assert watched.kinds() == ["gpu_lost"]


@pytest.mark.parametrize(
    ("says", "named"),
    [
        ("echo nonsense", "it said what cannot be understood"),
        ("head -c 100000 /dev/zero | tr '\\0' x", "it said more than 65536 bytes in one line"),
        ("exit 7", "ended with exit status 7"),
        (None, "a process to read NVML cannot be started"),
    ],
)
async def test_a_child_that_is_none_is_replaced_and_why_is_said(
    collect, state, source_options, tmp_path, monkeypatch, says, named
):
    program = tmp_path / "program"
    if says is not None:
        program.write_text(f"#!/bin/sh\n{says}\nexec sleep 60\n")
        program.chmod(0o755)
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", str(program))
        watched = await collect(**source_options)
        (problem, *_) = (await watched.collector.read()).problems
    assert named in problem
    await read_until(watched, lambda now: states(now) == HEALTHY, "a real child")
    assert watched.kinds() == ["nvml_failed", "nvml_recovered"]


@pytest.mark.parametrize("library", ["broken", "absent"])
async def test_a_node_without_nvml_says_so_and_that_is_no_fault(collect, tmp_path, monkeypatch, library):
    # A broken library of that name in front of any real one, so that the test means the same on a machine with GPUs.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    given = "" if library == "broken" else str(tmp_path / "nowhere.so")
    watched = await collect(library=given)
    readings = await watched.collector.read()
    assert readings.gpus == []
    assert readings.source == ("nvml" if given else "none"), "one that fails is not the same as none"
    if given:
        assert readings.problems[0].startswith("the NVML library cannot be loaded: ")
        assert watched.kinds() == ["nvml_failed"]
    else:
        assert readings.problems[0] == "no NVML library: NVML Shared Library Not Found"
        assert watched.events == []


# A child that answers each ask with errors alone until another was started since the file `loaded` came.
STALE_CLIENT = """#!{python}
import json, os, sys
loaded = os.path.exists({loaded!r})
print(json.dumps({{"type": "ready", "source": "nvml", "driver_version": "1", "gpus": 1}}), flush=True)
for line in sys.stdin:
    ask = json.loads(line)
    fields = {{"power_milliwatts": 76000 if loaded else "error"}}
    answer = {{"type": "answer", "number": ask["number"], "gpu": 0, "at_ms": 1, "fields": fields}}
    print(json.dumps(answer), flush=True)
"""


async def test_nvml_is_opened_afresh_where_all_gpus_give_errors_as_to_clients_of_a_driver_loaded_anew(
    collect, tmp_path, monkeypatch
):
    program, loaded = tmp_path / "program", tmp_path / "loaded"
    program.write_text(STALE_CLIENT.format(python=sys.executable, loaded=str(loaded)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    watched = await collect()
    await read_until(watched, lambda now: states(now) == ["error"], "errors alone")
    loaded.touch()
    await read_until(watched, lambda now: states(now) == ["ok"], "another client's answers")
    assert watched.kinds() == ["gpu_error", "gpu_recovered"]
