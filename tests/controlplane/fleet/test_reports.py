from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import UNSET, UnsetType

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import NotFound, Refused
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS, take_report
from tests.controlplane.core.configuration import compiled
from tests.controlplane.core.racing import at_once, meeting, two_writers
from tests.controlplane.fleet.conftest import ENGINE, MODEL
from wire.messages import EngineReport, FoundEngine, GpuReport, NodeReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 4, 20, tzinfo=UTC)


def gpu(uuid: str, index: int = 0) -> GpuReport:
    return GpuReport(uuid=uuid, index=index, model="NVIDIA H100", memory_bytes=80 << 30)


def test_inventory_and_state_are_stored_without_audit_or_configuration(fleet):
    written = AuditEntry.objects.count()
    report = NodeReport(
        version="1.2",
        gpus=[gpu("GPU-a"), gpu("GPU-b", 1)],
        engines=[EngineReport(name="e1", state="down", version="0.32.0", error="refused\x00")],
        driver_version="580.1",
        cuda_version="13.0",
        gpu_source="nvml",
    )
    assert take_report("n1", report, NOW) == ([], [])
    node, engine = Node.objects.get(), Engine.objects.get()
    assert (node.agent_version, node.driver_version, node.gpu_source, node.reported_at) == ("1.2", "580.1", "nvml", NOW)
    assert (engine.state, engine.version, engine.error, engine.reported_at) == ("down", "0.32.0", "refused\ufffd", NOW)
    assert [item["uuid"] for item in fleet.get("/gpus?node=n1").json()["items"]] == ["GPU-a", "GPU-b"]
    assert fleet.get("/nodes/n1").json()["cuda_version"] == "13.0"
    assert AuditEntry.objects.count() == written
    take_report("n1", NodeReport(version="1.1"), LATER)
    assert fleet.get("/nodes/n1").json()["cuda_version"] is None, "of an agent that does not tell it"


def test_what_an_agent_tells_of_an_engine_is_shown_with_it_and_kept_out_of_the_audit(fleet):
    told = EngineReport(
        name="e1",
        state="up",
        condition="sleeping",
        started_at_ms=1_767_323_045_678,
        arguments={"max-model-len": "8192\x00"},
        start_phases_ms={"load": 4200},
        model_path="/models/llama",
        model_bytes=16 << 30,
        probes={"json_schema": "failed"},
    )
    take_report("n1", NodeReport(version="1", engines=[told]), NOW)
    for shown in (fleet.get("/engines/e1").json(), fleet.get("/engines").json()["items"][0]):
        assert (shown["condition"], shown["started_at"]) == ("sleeping", "2026-01-02T03:04:05.678Z")
        assert shown["arguments"] == {"max-model-len": "8192\ufffd"}
        assert (shown["start_phases_ms"], shown["probes"]) == ({"load": 4200}, {"json_schema": "failed"})
        assert (shown["model_path"], shown["model_bytes"]) == ("/models/llama", 16 << 30)
    fleet.post("/engines/e1/cordon")
    assert "arguments" not in str(AuditEntry.objects.latest("pk").after)
    take_report("n1", NodeReport(version="1", engines=[EngineReport(name="e1", state="down")]), LATER)
    later = fleet.get("/engines/e1").json()
    assert (later["condition"], later["arguments"], later["model_bytes"]) == ("ok", {}, None)


def test_a_start_in_no_calendar_is_not_shown(fleet):
    engine = EngineReport(name="e1", state="up", started_at_ms=2**53 - 1)
    take_report("n1", NodeReport(version="1", engines=[engine]), NOW)
    assert fleet.get("/engines/e1").json()["started_at"] is None


def test_what_a_node_allows_and_finds_is_shown_with_it(fleet):
    found = FoundEngine("http://127.0.0.1:8001", "vllm", version="0.11.0", models=["a\x00"])
    allowed = {"": ["release_gpus"], "e1": ["sleep", "wake"]}
    take_report("n1", NodeReport(version="1", found_engines=[found], allowed_acts=allowed), NOW)
    shown = fleet.get("/nodes/n1").json()
    assert shown["allowed_acts"] == allowed
    assert shown["found_engines"] == [
        {"url": "http://127.0.0.1:8001", "kind": "vllm", "version": "0.11.0", "models": ["a\ufffd"]}
    ]
    take_report("n1", NodeReport(version="1"), LATER)
    later = fleet.get("/nodes/n1").json()
    assert (later["allowed_acts"], later["found_engines"]) == ({}, [])


def test_a_gpu_that_vanished_is_removed_and_one_that_stayed_is_the_same_row(fleet):
    take_report("n1", NodeReport(version="1", gpus=[gpu("GPU-a"), gpu("GPU-b", 1)]), NOW)
    kept = Gpu.objects.get(uuid="GPU-b").pk
    take_report("n1", NodeReport(version="1", gpus=[gpu("GPU-b", 0)]), LATER)
    row = Gpu.objects.get()
    assert (row.pk, row.index, row.reported_at) == (kept, 0, LATER)


def test_a_measured_capacity_becomes_configuration_once(fleet):
    report = NodeReport(version="1", engines=[EngineReport(name="e1", state="up", kv_capacity_tokens=200_000)])
    written = AuditEntry.objects.count()
    take_report("n1", report, NOW)
    assert compiled("engines", "e1")["kv_capacity_tokens"] == 200_000
    entry = AuditEntry.objects.latest("pk")
    assert (entry.actor_kind, entry.actor, entry.noun, entry.key) == ("target", "node/n1", "engine", "e1")
    assert entry.before is not None
    assert entry.after == {**entry.before, "kv_capacity_tokens": 200_000}
    take_report("n1", report, LATER)
    assert AuditEntry.objects.count() == written + 1
    assert Engine.objects.get().reported_at == LATER


def test_an_engine_that_says_no_capacity_keeps_the_one_it_has(fleet):
    fleet.patch("/engines/e1", {"kv_capacity_tokens": 5})
    take_report("n1", NodeReport(version="1", engines=[EngineReport(name="e1", state="up")]), NOW)
    assert Engine.objects.get().kv_capacity_tokens == 5


def test_an_engine_that_is_not_the_nodes_is_ignored_and_named(fleet):
    fleet.post("/nodes", {"name": "n2"})
    fleet.post("/engines", {**ENGINE, "name": "e2", "node": "n2"})
    engines = [EngineReport(name=name, state="up", kv_capacity_tokens=7) for name in ("e1", "e2", "ghost")]
    assert take_report("n1", NodeReport(version="1", engines=engines), NOW) == (["e2", "ghost"], [])
    foreign = Engine.objects.get(name="e2")
    assert (foreign.state, foreign.kv_capacity_tokens) == ("unknown", None)


def test_what_is_reported_twice_is_refused_and_nothing_is_stored(fleet):
    report = NodeReport(version="2", gpus=[gpu("GPU-a"), gpu("GPU-a", 1)])
    with pytest.raises(Refused, match="GPU-a"):
        take_report("n1", report, NOW)
    assert Node.objects.get().reported_at is None
    assert not Gpu.objects.exists()


def test_gpus_that_the_database_cannot_tell_apart_are_refused_as_the_same(fleet):
    report = NodeReport(version="1", gpus=[gpu("u\x00"), gpu("u\ufffd", 1)])
    with pytest.raises(Refused) as refused:
        take_report("n1", report, NOW)
    assert [(p.path, p.rule) for p in refused.value.problems] == [("/gpus", "unique")]
    assert not Gpu.objects.exists()


@pytest.mark.django_db
def test_a_report_of_an_unknown_node_is_not_taken():
    with pytest.raises(NotFound):
        take_report("nobody", NodeReport(version="1"), NOW)


def test_gpus_of_an_unknown_node_are_not_found(fleet):
    assert fleet.get("/gpus?node=nobody").status_code == 404


def test_a_report_takes_few_queries_however_large(fleet, django_assert_max_num_queries):
    gpus = [gpu(f"GPU-{index}", index) for index in range(16)]
    report = NodeReport(version="1", gpus=gpus, engines=[EngineReport(name="e1", state="up")])
    take_report("n1", report, NOW)
    # Savepoint and release around the bulk update included.
    with django_assert_max_num_queries(12):
        take_report("n1", report, LATER)


@two_writers
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("capacity", [UNSET, 200_000])
def test_a_report_and_a_change_of_its_engine_do_not_wait_for_each_other_forever(
    monkeypatch: pytest.MonkeyPatch, capacity: int | UnsetType
) -> None:
    fields = {name: value for name, value in ENGINE.items() if name != "name"}
    with unit_of_work(SYSTEM, "a fleet") as unit:
        MODELS.create(unit, MODEL, {"max_context_tokens": 8192})
        POOLS.create(unit, "short", {"model": MODEL})
        NODES.create(unit, "n1", {})
        ENGINES.create(unit, "e1", fields)
    meet, lock, assign = meeting(), NODES.lock, ENGINES.assign
    # The report holds its node, and the change its engine, when they meet.
    monkeypatch.setattr(NODES, "lock", lambda name: (lock(name), meet())[0])
    monkeypatch.setattr(ENGINES, "assign", lambda row, values: (meet(), assign(row, values))[1])
    report = NodeReport(version="1", engines=[EngineReport(name="e1", state="up", kv_capacity_tokens=capacity)])

    def change() -> None:
        with unit_of_work(SYSTEM, "another address") as unit:
            ENGINES.update(unit, "e1", {"url": "http://10.0.0.2:8000"})

    assert at_once(lambda: take_report("n1", report, NOW), change) == [None, None]
    engine = Engine.objects.get()
    assert (engine.url, engine.state) == ("http://10.0.0.2:8000", "up")
