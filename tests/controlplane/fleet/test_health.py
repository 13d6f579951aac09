"""What a node's last report says of it, and what time does to that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.health import node_health
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.fleet.services import NODES, take_report
from wire.messages import EngineReport, GpuReport, NodeReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SILENT_SECONDS = 45


def node(**facts) -> Node:
    return Node(**{"name": "n1", "gpu_source": "nvml", "reported_at": NOW, **facts})


def health(row: Node, gpus: list[Gpu] | None = None, engines: list[Engine] | None = None):
    return node_health(row, gpus or [], engines or [], NOW, SILENT_SECONDS)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("row", "gpus", "engines", "expected"),
    [
        (node(), [Gpu(index=0, state="ok")], [Engine(name="e1", state="up")], ("ok", [])),
        (node(reported_at=None), [], [], ("unknown", ["never_reported"])),
        (node(reported_at=ago(45)), [], [], ("ok", [])),
        (node(reported_at=ago(75)), [], [], ("lost", ["agent_silent: 75 s"])),
        (node(cordoned=True, cordon_reason="XID 79"), [], [], ("cordoned", ["cordoned: XID 79"])),
        (
            node(),
            [Gpu(index=3, state="lost"), Gpu(index=1, state="unresponsive")],
            [Engine(name="e1", state="down", error="refused")],
            ("degraded", ["gpu_unresponsive: GPU 1", "gpu_lost: GPU 3", "engine_down: e1: refused"]),
        ),
        (
            node(reported_at=ago(60), cordoned=True),
            [Gpu(index=0, state="error")],
            [],
            ("lost", ["agent_silent: 60 s", "cordoned", "gpu_error: GPU 0"]),
        ),
        (node(gpu_problems=["NVML fails"]), [], [], ("degraded", ["gpu_problem: NVML fails"])),
        (node(gpu_source="none", gpu_problems=["no library"]), [], [], ("ok", ["no_gpu: no library"])),
        (node(host_problems=["disk /m: hangs"]), [], [], ("ok", ["host_problem: disk /m: hangs"])),
        (node(), [], [Engine(name="e1", state="up", cordoned=True)], ("ok", ["engine_cordoned: e1"])),
        (node(), [], [Engine(name="e1", state="starting")], ("ok", [])),
        (
            node(),
            [],
            [Engine(name="e1", state="up", condition="hung", error="no token for 60 s")],
            ("degraded", ["engine_hung: e1: no token for 60 s"]),
        ),
        (
            node(),
            [],
            [
                Engine(name="e1", state="up", facts={"probes": {"json_schema": "failed", "canary": "ok"}}),
                Engine(name="e2", state="up", facts={"probes": {"json_schema": "ok"}}),
            ],
            ("degraded", ["engine_probe_failed: e1: json_schema"]),
        ),
        (
            node(),
            [],
            [Engine(name="e1", state="up", condition="paused"), Engine(name="e2", state="up", condition="sleeping")],
            ("ok", ["engine_paused: e1", "engine_sleeping: e2"]),
        ),
        (
            node(),
            [],
            [Engine(name="e1", state="down", condition="unreachable", error="no answer")],
            ("degraded", ["engine_down: e1: no answer"]),
        ),
    ],
)
def test_a_nodes_state_is_the_gravest_and_all_reasons_are_named(row, gpus, engines, expected):
    assert health(row, gpus, engines) == expected


states = st.sampled_from(["ok", "lost", "unresponsive", "error", "of a later version"])


@given(
    gpu_states=st.lists(states, max_size=8),
    engine_states=st.lists(st.sampled_from(["up", "down", "starting", "unknown"]), max_size=4),
    cordoned=st.booleans(),
    silent_seconds=st.none() | st.floats(0, 10_000),
)
def test_no_failure_and_no_silence_is_hidden(gpu_states, engine_states, cordoned, silent_seconds):
    row = node(cordoned=cordoned, reported_at=None if silent_seconds is None else ago(silent_seconds))
    gpus = [Gpu(index=index, state=state) for index, state in enumerate(gpu_states)]
    engines = [Engine(name=f"e{index}", state=state) for index, state in enumerate(engine_states)]
    state, reasons = health(row, gpus, engines)
    silent = silent_seconds is None or silent_seconds > SILENT_SECONDS
    failures = sum(gpu != "ok" for gpu in gpu_states) + engine_states.count("down")
    assert len(reasons) == silent + cordoned + failures
    assert (state in {"lost", "unknown"}) == silent
    assert (state == "ok") == (not reasons)
    assert state != "degraded" or not cordoned


def test_the_list_and_the_node_show_it_and_the_audit_does_not(fleet, django_assert_max_num_queries):
    shown = fleet.get("/nodes/n1").json()
    assert (shown["health"], shown["health_reasons"]) == ("unknown", ["never_reported"])
    gpus = [GpuReport(uuid="GPU-a", index=0, model="H100", state="lost")]
    engines = [EngineReport(name="e1", state="down", error="refused")]
    take_report("n1", NodeReport(version="1", gpus=gpus, engines=engines, gpu_source="nvml"), datetime.now(UTC))
    for number in range(2, 12):
        fleet.post("/nodes", {"name": f"n{number}"})
    # The caller, the nodes, their GPUs, their engines.
    with django_assert_max_num_queries(4):
        first = fleet.get("/nodes").json()["items"][0]
    assert (first["name"], first["health"]) == ("n1", "degraded")
    assert first["health_reasons"] == ["gpu_lost: GPU 0", "engine_down: e1: refused"]
    assert "health" not in NODES.describe(Node.objects.get(name="n1"))
