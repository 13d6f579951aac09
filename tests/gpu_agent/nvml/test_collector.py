"""Faults of simulated GPUs, through the whole of it: library or state file, child process, reader, events."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from gpu_agent.nvml.fields import FIELD_NAMES
from gpu_agent.nvml.process import NvmlChild
from gpu_agent.nvml.reader import NvmlReader
from gpu_agent.nvml.readings import XidTally
from simulator.gpu import fault
from tests.gpu_agent.nvml.polling import INTERVAL_SECONDS, read_until, states

HEALTHY = ["ok", "ok", "ok"]


async def test_gpus_are_read_with_their_values_and_shown_as_simulated(collect, state, source_options):
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    assert (readings.source, readings.driver_version) == ("simulated", "580.95.05-simulated")
    assert [gpu.identity.index for gpu in readings.gpus] == [0, 1, 2]
    gpu, written = readings.gpus[1], state.read().gpus[1]
    assert (gpu.identity.uuid, gpu.identity.pci_bus_id) == (written.uuid, written.pci_bus_id)
    assert gpu.identity.name.startswith("Simulated ")
    fields = {name: value for name, value in written.values.items() if name in FIELD_NAMES}
    assert {name: gpu.fields[name] for name in fields} == fields
    assert gpu.fields["memory_free_bytes"] == 150_754_820_096 - 642_777_088


async def test_a_field_that_a_gpu_does_not_support_is_named_so_and_the_others_are_read(collect, state, source_options):
    with state.change() as machine:
        machine.gpus[0].values["memory_total_bytes"] = "unsupported"
        del machine.gpus[0].values["memory_temperature_celsius"]
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    # Beside those that no such board has.
    untouched = readings.gpus[1].fields
    fields = readings.gpus[0].fields
    missing = {name for name, value in fields.items() if value == "unsupported" != untouched[name]}
    memory = {"memory_total_bytes", "memory_free_bytes", "memory_used_bytes", "memory_reserved_bytes"}
    assert missing == {*memory, "memory_temperature_celsius"}


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


async def test_an_agent_that_stood_still_while_answers_came_calls_no_gpu_unresponsive(collect, fake_nvml, state):
    """Stopped, or suspended with its machine: of the reading that was under way only its deadline is left."""
    watched = await collect(library=str(fake_nvml))
    await read_until(watched, lambda now: states(now) == HEALTHY, "three healthy GPUs")
    reading = asyncio.create_task(watched.collector.read())
    await asyncio.sleep(0)
    time.sleep(2)  # noqa: ASYNC251 - that is what is tested
    await reading
    await read_until(watched, lambda now: states(now) == HEALTHY, "three healthy GPUs")
    assert watched.kinds() == []


async def test_a_hung_gpu_delays_a_reading_by_no_more_than_the_wait_for_answers(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.hang(machine, 0)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await watched.collector.read()
    assert loop.time() - before < 2


async def test_a_lost_gpu_is_named_and_its_values_stop_while_the_others_go_on(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.lose(machine, 2)
    readings = await read_until(watched, lambda now: states(now) == ["ok", "ok", "lost"], "GPU 2 to be lost")
    assert not any(isinstance(value, int) for value in readings.gpus[2].fields.values())
    assert watched.kinds() == ["gpu_lost"]
    with state.change() as machine:
        fault.recover(machine, 2)
    await read_until(watched, lambda now: states(now) == HEALTHY, "GPU 2 to be back")
    assert watched.kinds() == ["gpu_lost", "gpu_recovered"]


async def test_a_gpu_lost_from_the_start_hides_no_other(collect, state, source_options):
    with state.change() as machine:
        fault.lose(machine, 0)
    watched = await collect(**source_options)
    readings = await read_until(watched, lambda now: states(now) == ["lost", "ok", "ok"], "the two that are there")
    assert readings.gpus[0].identity.uuid == ""
    assert readings.problems[:2] == [
        "GPU 0 has not said which it is, and is not listed",
        "GPU 0: no XIDs through NVML: GPU is lost",
    ]


async def test_the_first_reading_waits_for_a_gpu_whose_driver_loads_longer_than_an_interval(
    collect, state, source_options
):
    interval_seconds = 1.0

    def loaded():
        with state.change() as machine:
            fault.recover(machine, 1)

    with state.change() as machine:
        fault.hang(machine, 1)
    asyncio.get_running_loop().call_later(1.5 * interval_seconds, loaded)
    watched = await collect(**source_options, interval_seconds=interval_seconds)
    readings = await watched.collector.read()
    assert states(readings) == HEALTHY
    assert readings.gpus[1].identity.uuid == state.read().gpus[1].uuid
    assert watched.events == []


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


async def test_reading_gpus_can_be_switched_off(collect):
    watched = await collect(source="none")
    readings = await watched.collector.read()
    assert (readings.source, readings.problems[0]) == ("none", "reading GPUs is switched off")
    assert watched.collector.nvml.child_pid is None


async def test_each_xid_is_an_event_and_a_repeat_is_counted(collect, state, source_options):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    for _ in range(2):
        with state.change() as machine:
            fault.throw_xid(machine, 1, 48)
    readings = await read_until(watched, lambda now: now.gpus[1].xids.total == 2, "both XIDs")
    assert readings.gpus[1].xids == XidTally(last=48, total=2)
    assert readings.gpus[0].xids == XidTally()
    assert watched.kinds() == ["xid"]
    (event,) = watched.events
    assert (event.node, event.subject, event.severity) == ("gpu-01", readings.gpus[1].identity.uuid, "critical")
    assert event.detail.startswith("XID 48 (Double Bit ECC Error) on GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0)")


async def test_an_xid_thrown_before_the_agent_started_is_not_delivered_through_nvml(collect, state, source_options):
    with state.change() as machine:
        fault.throw_xid(machine, 1, 48)
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 1, 31)
    readings = await read_until(watched, lambda now: now.gpus[1].xids.total > 0, "the new XID")
    assert readings.gpus[1].xids == XidTally(last=31, total=1)


async def test_xid_79_through_nvml_and_twice_through_the_kernel_log_counts_once(
    collect, state, source_options, tmp_path
):
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    watched = await collect(**source_options, kmsg_path=kmsg, scan_seconds=86_400 * 30)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 2, 79)
        fault.lose(machine, 2)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "NVML's XID")
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    with kmsg.open("a") as log:
        log.write(f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', GPU has fallen off the bus.\n")
        log.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:03:00.0\n")
        log.write(f"2,901,{now_us},-;NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.\n")
        log.write(f"2,902,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python\n")
    readings = await read_until(watched, lambda now: now.gpus[0].xids.total == 1, "the kernel log's XID 31")
    assert readings.gpus[2].xids == XidTally(last=79, total=1)
    assert sorted(watched.kinds()) == ["gpu_lost", "xid", "xid"]


async def test_an_xid_that_nvml_told_of_before_a_restart_is_not_told_again_by_the_kernel_log(
    collect, state, source_options, tmp_path
):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 2, 79)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "NVML's XID")
    await watched.collector.stop()
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(
        f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
        f"2,901,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python\n"
    )
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "the other XID")
    assert [event.detail.split()[1] for event in watched.events if event.kind == "xid"] == ["31"]


async def test_xids_are_told_without_nvml_by_the_kernel_log_alone(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(
        f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n"
        f"2,901,{now_us},-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 24007, Fatal, Link 60 timeout\n"
    )
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 2, "both events")
    assert [(event.kind, event.subject, event.severity) for event in watched.events] == [
        ("xid", "00000000:03:00.0", "critical"),
        ("sxid", "00000000:06:00.0", "critical"),
    ]
    assert watched.events[0].id.endswith("-900")
    readings = await watched.collector.read()
    assert readings.xids_elsewhere == {"00000000:03:00.0": XidTally(79, 1)}
    assert readings.sxids == {"00000000:06:00.0": XidTally(24007, 1)}


async def test_xids_of_a_gpu_that_is_read_are_told_with_it_alone(collect, fake_nvml, state, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(f"2,900,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1\n")
    watched = await collect(library=str(fake_nvml), kmsg_path=kmsg)
    readings = await read_until(watched, lambda now: watched.events, "the XID")
    assert readings.gpus[0].xids == XidTally(31, 1)
    assert (readings.xids_elsewhere, readings.sxids) == ({}, {})


async def test_a_storm_of_one_sxid_is_one_event_in_a_while_and_one_that_is_fatal_is_always_told(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kinds = [("Non-fatal", 0), ("Non-fatal", 1), ("Non-fatal", 2), ("Fatal", 3), ("Non-fatal", 11)]
    kmsg.write_text(
        "".join(
            f"2,{number},{now_us - (20 - after) * 1_000_000},-;"
            f"nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 12028, {kind}, Link {number} egress\n"
            for number, (kind, after) in enumerate(kinds)
        )
    )
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 3, "three events")
    first, fatal, later = watched.events
    assert [event.severity for event in watched.events] == ["warning", "critical", "warning"]
    assert "Link 0 egress" in first.detail
    assert "Link 3 egress" in fatal.detail
    assert later.detail.endswith("Link 4 egress; 2 more of it since the last event")


async def test_an_xid_of_a_mig_instance_names_it_and_one_of_the_whole_gpu_does_not(
    collect, state, source_options, tmp_path
):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(f"2,1,{now_us},-;NVRM: Xid (PCI:0000:03:00 GPU-I:07): 94, pid=1, name=python\n")
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: watched.collector.nvml.watches_xids, "watched GPUs")
    with state.change() as machine:
        fault.slice_mig(machine, 1)
        fault.throw_xid(machine, 1, 94, gpu_instance_id=9)
        fault.throw_xid(machine, 1, 48)
    await read_until(watched, lambda now: len(watched.events) == 3, "all XIDs")
    where = {event.detail.partition(": ")[0].partition(" on ")[2] for event in watched.events}
    assert where == {
        "GPU 2 (Simulated NVIDIA H200, 00000000:03:00.0), MIG instance 7",
        "GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0), MIG instance 9",
        "GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0)",
    }


async def test_xid_154_has_the_recovery_action_read_at_once(collect, state, source_options):
    watched = await collect(**source_options, slow_interval_seconds=3600)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        for gpu in machine.gpus:
            gpu.values["recovery_action"] = 1
        fault.throw_xid(machine, 1, 154)
    await read_until(watched, lambda now: now.gpus[1].fields["recovery_action"] == 1, "the recovery action")
    readings = await watched.collector.read()
    assert [gpu.fields["recovery_action"] for gpu in readings.gpus] == [0, 1, 0]


async def test_it_says_which_sources_of_xids_it_has(collect, state, source_options, tmp_path):
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: watched.collector.xid_sources == ["nvml", "kmsg"], "both sources")
    await watched.collector.release(300)
    assert watched.collector.xid_sources == ["kmsg"]
    without = await collect(source="none")
    readings = await read_until(without, lambda now: len(now.problems) == 2, "both problems")
    assert without.collector.xid_sources == []
    assert readings.problems[1].startswith("the kernel log cannot be read: ")


async def test_an_xid_that_another_ends_is_told_so(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    said = enumerate((163, 162))
    kmsg.write_text("".join(f"2,{number},{now_us},-;NVRM: Xid (PCI:0000:03:00): {xid}, x\n" for number, xid in said))
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 2, "both events")
    disengaged, engaged = (event.detail for event in watched.events)
    assert disengaged.startswith("XID 163 (Power smoothing disengaged) on the GPU at 00000000:03:00.0: class hardware")
    assert engaged.endswith("class information, action none; XID 163 is over")


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


async def test_with_mig_on_utilization_is_unsupported_and_the_rest_is_read(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    readings = await read_until(watched, lambda now: now.gpus[0].fields["mig_mode"] == 1, "MIG on")
    assert readings.gpus[0].fields["gpu_utilization_percent"] == "unsupported"
    assert readings.gpus[0].fields["power_milliwatts"] == 76_000
    assert states(readings) == HEALTHY


async def test_throttling_shows_in_the_clock_event_reasons(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.throttle(machine, 0)
        fault.heat(machine, 1)
    readings = await read_until(watched, lambda now: now.gpus[0].fields["clock_event_reasons"] != 1, "throttling")
    assert [gpu.fields["clock_event_reasons"] for gpu in readings.gpus] == [0x88, 0x48, 0x1]


async def test_stopping_ends_the_child(collect, state, source_options):
    watched = await collect(**source_options)
    pid = watched.collector.nvml.child_pid
    await watched.collector.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
