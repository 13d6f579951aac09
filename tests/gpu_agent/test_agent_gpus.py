"""The agent's process with simulated GPUs: what it reports of them, logs of their faults, and costs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from math import isnan

from bench.support.compiled import compiled
from bench.support.memory import resident_together
from simulator.gpu import fault
from simulator.gpu.state import healthy_machine
from tests.gpu_agent.processes import agent, children, exists
from tests.services import Process, wait_for
from tests.wire.examples import node_content
from tests.wire.fake_control import DEADLINE_SECONDS, snapshot_event
from wire.push import WRITE_PATH
from wire.write_body import METRIC_NAME

REPORT = "/api/v1/nodes/report"
RESIDENT_LIMIT_BYTES = 60_000_000


async def reported_memory(control, wanted):
    """The next report of GPUs with these bytes of memory."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            report = await control.posted(REPORT)
            if [gpu.get("memory_bytes") for gpu in report["gpus"]] == wanted:
                return report


async def reported_released(control):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            report = await control.posted(REPORT)
            if any("NVML is released until" in problem for problem in report.get("gpu_problems", [])):
                return report


async def series_that_end(control):
    """Names of the series of the next body in which GPUs' series end."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            body = await control.posts[WRITE_PATH].get()
            names = {each.labels[METRIC_NAME] for each in body if "gpu" in each.labels and isnan(each.samples[0][1])}
            if names:
                return names


def release_gpu(tmp_path):
    """Runs a command that ends with exit status 3 once the test makes the file `go`; it made `begun` first."""
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
    command = [sys.executable, "-m", "gpu_agent.cli", "release-gpu", "--state-dir", str(tmp_path / "state")]
    return Process([*command, "--", "sh", "-c", script], log=tmp_path / "release.log")


async def logged(process, text):
    """The one line of the log that holds `text`, once it is there."""
    await asyncio.to_thread(process.wait_until, lambda: text in process.log.read_text(), f"{text} in the log")
    (line,) = [line for line in process.log.read_text().splitlines() if text in line]
    return line


async def test_gpus_are_reported_as_simulated_with_all_that_nvml_says(control, tmp_path, environment, state):
    with agent(tmp_path, control.url, **environment) as process:
        report = await control.posted(REPORT)
        assert (report["gpu_source"], report["simulated"]) == ("simulated", True)
        assert (report["driver_version"], report["cuda_version"]) == ("580.95.05-simulated", "13.0")
        assert report["gpus"] == [
            {
                "uuid": gpu.uuid,
                "index": index,
                "model": gpu.name,
                "memory_bytes": gpu.values["memory_total_bytes"],
                "pci_bus_id": gpu.pci_bus_id,
                "simulated": True,
            }
            for index, gpu in enumerate(state.read().gpus)
        ]
        (child,) = children(process.pid)
        assert await asyncio.to_thread(process.stop) == 0
        assert not exists(child)


async def test_an_xid_is_one_line_of_the_log(control, tmp_path, environment, state):
    with agent(tmp_path, control.url, **environment) as process:
        await control.posted(REPORT)
        with state.change() as machine:
            fault.throw_xid(machine, 1, 79)
        line = await logged(process, "XID 79")
        assert " CRITICAL headworks.agent event xid on GPU-" in line
        assert "(GPU has fallen off the bus) on GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0)" in line
        assert "action cordon_reboot" in line


async def test_a_hung_gpu_keeps_its_row_while_the_others_are_reported_on(control, tmp_path, environment, state):
    with agent(tmp_path, control.url, **environment) as process:
        total = state.read().gpus[0].values["memory_total_bytes"]
        await reported_memory(control, [total, total, total])
        with state.change() as machine:
            fault.hang(machine, 1)
        uuid = state.read().gpus[1].uuid
        assert f"CRITICAL headworks.agent event gpu_unresponsive on {uuid}" in await logged(process, "does not answer")
        with state.change() as machine:
            machine.gpus[1].values["memory_total_bytes"] = 1
            machine.gpus[2].values["memory_total_bytes"] = total // 2
        await reported_memory(control, [total, total, total // 2])
        with state.change() as machine:
            fault.recover(machine, 1)
        await reported_memory(control, [total, 1, total // 2])
        assert f"INFO headworks.agent event gpu_recovered on {uuid}" in await logged(process, "answers again")


async def test_a_node_without_nvml_says_so(control, tmp_path, environment):
    # A broken library of that name in front of any real one, so that the test means the same on a machine with GPUs.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    environment |= {"HEADWORKS_AGENT_NVML_LIBRARY": "", "LD_LIBRARY_PATH": str(tmp_path)}
    with agent(tmp_path, control.url, **environment) as process:
        report = await control.posted(REPORT)
        problem = "no NVML library: NVML Shared Library Not Found"
        assert report.keys() == {"version", "gpu_problems", "revision"}, "no GPUs, and source none, which goes unsaid"
        assert problem in report["gpu_problems"]
        assert " WARNING " in await logged(process, f"NVML: {problem}")


async def test_it_ends_on_sigterm_while_nvml_hangs_in_its_opening(control, tmp_path, environment, state):
    with state.change() as machine:
        machine.init_hangs = True
    with agent(tmp_path, control.url, **environment) as process:
        (child,) = await asyncio.to_thread(process.wait_until, lambda: children(process.pid), "NVML to be opened")
        assert await asyncio.to_thread(process.stop) == 0
        assert not exists(child)
        assert "Traceback" not in process.log.read_text()


async def test_release_gpu_lets_a_reset_through_and_the_agents_death_meanwhile_changes_nothing(
    control, tmp_path, environment, state
):
    with agent(tmp_path, control.url, **environment) as process:
        listed = (await reported_memory(control, [gpu.values["memory_total_bytes"] for gpu in state.read().gpus]))[
            "gpus"
        ]
        (child,) = children(process.pid)
        with release_gpu(tmp_path) as release:
            await asyncio.to_thread(wait_for, (tmp_path / "begun").exists, 20, "the command to run")
            assert not exists(child)
            assert (await reported_released(control))["gpus"] == listed, "the GPUs stay in the report"
            ended = await series_that_end(control)
            assert {"headworks_gpu_up", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"} <= ended
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            with agent(tmp_path, control.url, **environment) as again:
                await reported_released(control)
                assert children(again.pid) == []
                (tmp_path / "go").touch()
                assert await asyncio.to_thread(release.wait) == 3
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while (await control.posted(REPORT)).get("gpus") != listed:
                        pass
    assert "event" not in process.log.read_text()


async def test_with_eight_gpus_and_an_engine_the_agent_and_its_child_keep_to_their_memory(
    control, engine, tmp_path, environment, state
):
    state.create(healthy_machine(8))
    modules = ("gpu_agent.cli", "gpu_agent.nvml.child", "gpu_agent.nvml.library", "pynvml")
    environment = await asyncio.to_thread(compiled, modules, tmp_path / "compiled", environment)
    with agent(tmp_path, control.url, HEADWORKS_AGENT_REPORT_INTERVAL_SECONDS="0.1", **environment) as process:
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(10):
                report = await control.posted(REPORT)
                while "engines" not in report:
                    report = await control.posted(REPORT)
        assert len(report["gpus"]) == 8
        (child,) = children(process.pid)
        assert resident_together((process.pid, child)) <= RESIDENT_LIMIT_BYTES
