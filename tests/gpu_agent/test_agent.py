from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.agent import Agent, Options, _log_event
from gpu_agent.engines.node_engines import EngineOptions
from gpu_agent.engines.probes import ProbeOptions
from gpu_agent.host.watch import HostOptions
from gpu_agent.nvml.collector import CollectorOptions
from gpu_agent.nvml.reader import NvmlOptions
from gpu_agent.nvml.xids import XID_RULES
from gpu_agent.policy import NodePolicy
from simulator.gpu import fault
from tests.gpu_agent.processes import children, exists
from tests.wire.examples import gateway_content, node_content
from tests.wire.fake_control import DEADLINE_SECONDS, TOKEN, FakeControl, patch_event, snapshot_event
from wire.credentials import Credentials, store_credentials
from wire.messages import MAX_ENGINES, Event

REPORT = "/api/v1/nodes/report"


@pytest.fixture
def state_dir(tmp_path):
    store_credentials(tmp_path, Credentials("node-1", TOKEN, 4_000_000_000_000, 3_900_000_000_000))
    return tmp_path


def options(
    control: FakeControl,
    state_dir: Path,
    gpu_source: str = "none",
    *,
    report_interval_seconds: float = 3600,
    probe_interval_seconds: float = 0.02,
) -> Options:
    nvml = NvmlOptions(
        source=gpu_source,
        library="",
        interval_seconds=0.2,
        slow_interval_seconds=0.2,
        processes_interval_seconds=0.2,
        answer_seconds=0.1,
        open_seconds=20,
        retry_seconds=0.5,
    )
    (state_dir / "kmsg").touch()
    return Options(
        control_url=control.url,
        name="node-1",
        state_dir=state_dir,
        version="0.1.0",
        engines=EngineOptions(
            interval_seconds=probe_interval_seconds,
            page_timeout_seconds=5,
            page_limit_bytes=2**20,
            hung_seconds=60,
            series=None,
            ports=(),
            probes=ProbeOptions(canary_seconds=0, conformance_seconds=0, timeout_seconds=5),
        ),
        hostname_label="Hostname",
        policy=NodePolicy(),
        act_seconds=30,
        host=HostOptions(interval_seconds=0.2, disk_paths=(str(state_dir),)),
        page=None,
        spot_notice="",
        spool_bytes=2**20,
        event_spool_bytes=2**20,
        gpus=CollectorOptions(
            node="node-1",
            state_dir=state_dir,
            nvml=nvml,
            kmsg_path=state_dir / "kmsg",
            kmsg_scan_seconds=3600,
            rules=XID_RULES,
            dcgm_exporter_url="",
        ),
        report_interval_seconds=report_interval_seconds,
    )


@asynccontextmanager
async def running(chosen: Options):
    task = asyncio.create_task(Agent(chosen).run())
    try:
        yield
        assert not task.done(), "the agent ended by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reported(control: FakeControl, **wanted: Any) -> Any:
    """The next report that says all of `wanted`."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            report = await control.posted(REPORT)
            if wanted.items() <= report.items():
                return report


async def test_a_node_that_reads_no_gpus_reports_none(control, state_dir):
    async with running(options(control, state_dir)):
        assert await control.posted(REPORT) == {
            "version": "0.1.0",
            "gpu_problems": ["reading GPUs is switched off"],
            "revision": 0,
        }


async def test_engines_of_the_slice_are_watched_and_changes_reported(control, engine, state_dir):
    async with running(options(control, state_dir)):
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content(e1=engine.url)))
        assert (await control.ack())["revision"] == 3
        up = {
            "name": "e1",
            "state": "up",
            "version": "0.32.0",
            "kv_capacity_tokens": 1_048_576,
            "started_at_ms": 1_795_973_266_140,
        }
        await reported(control, engines=[up])
        engine.pages["/health"] = (503, b"")
        down = {"name": "e1", "state": "down", "error": "/health: answered 503", "condition": "dead"}
        await reported(control, engines=[down])
        stream.send(patch_event(3, 4, {"engines": {"e1": None}}, node_content()))
        assert "engines" not in await control.posted(REPORT)


async def test_an_unchanged_node_reports_once_an_interval(control, engine, state_dir):
    async with running(options(control, state_dir, report_interval_seconds=0.3)):
        started = asyncio.get_running_loop().time()
        first = await control.posted(REPORT)
        assert await control.posted(REPORT) == first
        assert asyncio.get_running_loop().time() - started >= 0.3


async def test_a_cordon_is_reported_as_applied(control, state_dir, caplog):
    caplog.set_level(logging.INFO)
    cordoned = node_content()
    cordoned["node"] |= {"cordoned": True, "cordon_reason": "XID 79"}
    async with running(options(control, state_dir, probe_interval_seconds=3600)):
        stream = await control.stream()
        await control.posted(REPORT)
        stream.send(snapshot_event(3, cordoned))
        await reported(control, cordon_applied=True)
        stream.send(snapshot_event(4, node_content()))
        assert "cordon_applied" not in await control.posted(REPORT)
    assert [message for message in caplog.messages if "XID 79" in message]


async def test_reports_resume_when_the_control_plane_is_back(control, state_dir, caplog):
    caplog.set_level(logging.INFO)
    control.refuse[REPORT].extend([(503, "down")] * 3)
    async with running(options(control, state_dir)):
        await control.posted(REPORT)
        assert not control.refuse[REPORT]
        async with asyncio.timeout(DEADLINE_SECONDS):
            while "reports arrive again" not in caplog.messages:  # noqa: ASYNC110 - a log line has no event
                await asyncio.sleep(0.005)
    assert sum("reports do not arrive" in message for message in caplog.messages) == 1
    assert TOKEN not in caplog.text


async def test_nvml_that_fails_leaves_the_gpus_in_the_reports_which_say_so(control, state_dir, state, caplog):
    async with running(options(control, state_dir, f"simulated:{state.path}")):
        good = await control.posted(REPORT)
        assert len(good["gpus"]) == 3
        with state.change() as machine:
            machine.init_result = 18
            for index in range(3):
                fault.hang(machine, index)
        problem = "RM has detected an NVML/RM version mismatch."
        bad = await reported(control, gpu_problems=[problem])
        assert bad["gpus"] == [{**gpu, "state": "unresponsive"} for gpu in good["gpus"]]
    failures = [message for message in caplog.messages if "NVML is unresponsive" in message]
    assert failures == ["event nvml_failed on nvml: NVML is unresponsive: no GPU answers"]


async def test_gpus_that_appear_later_are_reported_at_once(control, state_dir, state):
    with state.change() as machine:
        machine.init_result = 9
    source = f"simulated:{state.path}"
    async with running(options(control, state_dir, source, probe_interval_seconds=3600)):
        report = await control.posted(REPORT)
        assert (report["gpu_source"], report["gpu_problems"]) == ("simulated", ["Driver Not Loaded"])
        with state.change() as machine:
            machine.init_result = 0
        while len(report.get("gpus", [])) < 3:
            report = await control.posted(REPORT)


async def test_an_agent_that_ends_lets_go_of_nvml(control, state_dir, state):
    before = set(children(os.getpid()))
    async with running(options(control, state_dir, f"simulated:{state.path}")):
        await control.posted(REPORT)
        (child,) = set(children(os.getpid())) - before
    assert not exists(child)


def test_an_event_is_one_line_whatever_its_text_holds(caplog):
    caplog.set_level(logging.INFO)
    _log_event(Event("event-00001", 1, "gpu_recovered", "GPU-1", "info", "GPU 1 (odd\nname) answers again", "node-1"))
    assert caplog.record_tuples == [
        ("headworks.agent", logging.INFO, "event gpu_recovered on GPU-1: GPU 1 (odd name) answers again")
    ]


async def test_a_report_tells_the_revision_that_it_goes_by(control, state_dir):
    async with running(options(control, state_dir)):
        assert (await control.posted(REPORT))["revision"] == 0
        stream = await control.stream()
        stream.send(snapshot_event(3, node_content()))
        await reported(control, revision=3)
        # One that it refuses changes nothing of what it does.
        stream.send(snapshot_event(4, node_content("node-2")), snapshot_event(5, node_content()))
        told: set[int] = set()
        while 5 not in told:
            told.add((await control.posted(REPORT))["revision"])
        assert told <= {3, 5}
        while (await control.ack())["revision"] != 5:
            pass
    # None of the first agent.
    control.posts[REPORT] = asyncio.Queue()
    async with running(options(control, state_dir)):
        assert (await control.posted(REPORT))["revision"] == 5, "the slice that was kept on disk"


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (gateway_content(), "/kind"),
        (node_content("node-2"), "/node/name"),
        (node_content(**{f"e{number}": "http://127.0.0.1:1" for number in range(MAX_ENGINES + 1)}), "/engines"),
    ],
)
async def test_a_slice_that_is_not_this_nodes_is_refused(control, state_dir, content, path):
    async with running(options(control, state_dir)):
        (await control.stream()).send(snapshot_event(3, content))
        nack = await control.ack()
        assert [problem["path"] for problem in nack["error"]] == [path]


async def test_it_watches_its_last_known_engines_with_no_stream(control, engine, state_dir):
    async with running(options(control, state_dir)):
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        await control.ack()
    control.refuse["/api/v1/config/stream"].extend([(503, "down")] * 100)
    async with running(options(control, state_dir)):
        report = await control.posted(REPORT)
        while "engines" not in report:
            report = await control.posted(REPORT)
    assert report["engines"][0]["state"] == "up"
