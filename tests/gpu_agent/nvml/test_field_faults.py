"""What went wrong with others' GPU agents in the field, each shown not to happen here.

A fault that another test shows already is not shown twice:

- a hung GPU stops the exporter, or leaves stale values with all well: test_recovery, "one hung gpu", "hangs as a
  whole"; test_collector, "delays a reading"
- a process in D state cannot be ended: test_recovery, "children that cannot be killed"; test_release, "a child that
  cannot be ended"
- one lost GPU crashes the reader of all the others: test_collector, "a lost gpu", "lost from the start"
- a repeat of the same XID is invisible: test_collector_xids, "each xid is an event"
- an XID that NVML does not deliver is missing: test_collector_xids, "xid 79", "by the kernel log alone"
- any NVML client blocks a reset or a change of MIG: test_release, test_release_command, test_agent_gpus
- exporters use much memory: test_agent_gpus, "keep to their memory"
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gpu_agent.nvml.host_pids import sees_host_pids
from gpu_agent.nvml.metrics import samples
from gpu_agent.nvml.reports import gpu_reports
from gpu_agent.nvml.xids import XID_RULES
from simulator.gpu import fault
from simulator.gpu.state import MigInstance, Process
from tests.gpu_agent.nvml.polling import read_until, states
from tests.gpu_agent.processes import agent, children
from tests.wire.fake_control import DEADLINE_SECONDS

HEALTHY = ["ok", "ok", "ok"]
REPORT = "/api/v1/nodes/report"
MEMORY = {f"DCGM_FI_DEV_FB_{name}" for name in ("TOTAL", "FREE", "USED", "RESERVED")}


def sampled(readings, gpu=0, engine_of=lambda pid: None):
    found = samples(readings, hostname="gpu-01", rules=XID_RULES, engine_of=engine_of)
    return [sample for sample in found if sample.labels["gpu"] == str(gpu)]


def names(readings, gpu=0):
    return {sample.name for sample in sampled(readings, gpu)}


def told_of(pid, file):
    return Path(f"/proc/{pid}/{file}").read_text()


def instances(readings):
    """Labels of the MIG instances that have series."""
    return {sample.labels["GPU_I_ID"] for sample in sampled(readings) if "GPU_I_ID" in sample.labels}


async def test_instances_that_are_sliced_anew_between_two_readings_crash_nothing_and_leave_no_series(
    collect, state, source_options
):
    """gpu-monitoring-tools 142, dcgm-exporter 430: a handle of an instance that is gone."""
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    await read_until(watched, lambda now: len(instances(now)) == 7, "seven instances")
    pid = watched.collector.nvml.child_pid
    with state.change() as machine:
        machine.gpus[0].mig.instances = [MigInstance("MIG-new", 42, 0, 2**30, 2**20, "3g.71gb")]
    await read_until(watched, lambda now: instances(now) == {"42"}, "the new instance alone")
    with state.change() as machine:
        fault.recover(machine, 0)
    readings = await read_until(watched, lambda now: instances(now) == set(), "no instance")
    assert states(readings) == HEALTHY
    assert watched.events == []
    assert watched.collector.nvml.child_pid == pid


async def test_a_gpu_that_cannot_tell_its_memory_tells_all_else(collect, state, source_options):
    """gpud PR 1170: GetMemoryInfo of GB10 and GH200."""
    with state.change() as machine:
        for name in ("memory_total_bytes", "memory_reserved_bytes", "memory_used_bytes"):
            machine.gpus[0].values[name] = "unsupported"
    watched = await collect(**source_options)
    readings = await read_until(watched, lambda now: names(now, 1) - names(now, 0) == MEMORY, "all but its memory")
    assert states(readings) == HEALTHY
    reported, other, _ = gpu_reports(readings)
    assert not isinstance(reported.memory_bytes, int)
    assert (reported.state, reported.model) == ("ok", other.model)


async def test_a_node_whose_nvml_does_not_open_is_not_taken_for_one_without_gpus(control, tmp_path, environment, state):
    """k8s-device-plugin PR 1641: the node reports itself healthy. Health calls it degraded by these two fields."""
    with state.change() as machine:
        machine.init_result = 18
    with agent(tmp_path, control.url, **environment) as process:
        report = await control.posted(REPORT)
        assert report["gpu_source"] == "nvml"
        assert report["gpu_problems"][0] == "RM has detected an NVML/RM version mismatch."
        await asyncio.to_thread(
            process.wait_until,
            lambda: "CRITICAL headworks.agent event nvml_failed" in process.log.read_text(),
            "an event",
        )


async def test_nvml_is_loaded_by_the_child_alone_which_is_a_program_of_its_own_and_no_fork(
    control, tmp_path, environment
):
    """cuCascade PR 138: NVML's state is not fork-safe."""
    with agent(tmp_path, control.url, **environment) as process:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while "gpus" not in await control.posted(REPORT):
                pass
        (child,) = children(process.pid)
        assert "libnvidia-ml" in told_of(child, "maps")
        assert "libnvidia-ml" not in told_of(process.pid, "maps")
        assert "gpu_agent.nvml.child" in told_of(child, "cmdline")


async def test_memory_of_processes_is_put_to_engines_and_that_of_unknown_ones_to_none(collect, state, source_options):
    """nvidia-docker 1483: NVML numbers processes as the host does."""
    watched = await collect(**source_options)
    with state.change() as machine:
        machine.gpus[0].processes = [Process(100, 2**30), Process(101, 2**30), Process(4711, 2**20)]
    readings = await read_until(watched, lambda now: len(now.gpus[0].processes) == 3, "three processes")
    found = {
        (sample.name, sample.labels.get("engine")): sample.value
        for sample in sampled(readings, engine_of={100: "e1", 101: "e1"}.get)
        if "process" in sample.name
    }
    assert found == {
        ("headworks_gpu_processes", "e1"): 2,
        ("headworks_gpu_process_memory_bytes", "e1"): 2 * 2**30,
        ("headworks_gpu_processes", None): 1,
        ("headworks_gpu_process_memory_bytes", None): 2**20,
    }


@pytest.mark.parametrize(
    ("namespace", "sees"), [("pid:[4026531836]", True), ("pid:[4026532417]", False), (OSError("no /proc"), False)]
)
def test_ids_of_another_pid_namespace_are_not_taken_for_the_hosts(monkeypatch, namespace, sees):
    def readlink(path):
        assert path == "/proc/self/ns/pid"
        if isinstance(namespace, OSError):
            raise namespace
        return namespace

    monkeypatch.setattr(os, "readlink", readlink)
    assert sees_host_pids() is sees


async def test_process_lists_are_asked_for_rarely_whatever_the_other_intervals_are(collect, state, source_options):
    """4.5 ms a call on a laptop part, under the driver's lock."""
    watched = await collect(**source_options, processes_interval_seconds=3600)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three GPUs")
    with state.change() as machine:
        machine.gpus[0].processes = [Process(100, 2**30)]
        machine.gpus[0].values |= {"temperature_celsius": 55, "power_limit_milliwatts": 500_000}
    readings = await read_until(
        watched, lambda now: now.gpus[0].fields["power_limit_milliwatts"] == 500_000, "what is read slowly"
    )
    assert readings.gpus[0].fields["temperature_celsius"] == 55
    assert readings.gpus[0].processes == []
