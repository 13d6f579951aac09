"""What comes in between: people, other workers, other faults, texts that nobody foresaw. Nothing is done twice, nothing
is left half-way without a person being called, and a person's hand goes before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controlplane.alerts.models import Alert, Incident, IncidentState, NodeEvent
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import Act, Engine, Gpu, Node
from controlplane.fleet.services import ENGINES, NODES
from controlplane.remediation import beginning, facts, runner, services
from controlplane.remediation.models import Remediation, State
from tests.controlplane.alerts.conftest import event
from tests.controlplane.remediation.conftest import XID_95, Post, World, firing, said

LOST = "GPU 3 (H100, 0000:41:00.0) is lost"
SEVERAL_LINES = "reset: busy\n\x1b[31mnvidia-smi: 2 processes hold it\x1b[0m\n"


def lost(**changes: str) -> dict[str, Any]:
    return event("gpu_lost", detail=LOST, **changes)


def acted(world: World, steps: int) -> Remediation:
    row = world.look()
    for _ in range(steps):
        world.act()
        row = world.look()
    return row


def test_a_gpu_that_is_back_after_the_reboot_does_not_end_its_repair_half_way(acting: World, post: Post) -> None:
    post(lost())
    acted(acting, 2)
    assert acting.act() == [("reboot", "n1")]
    post(event("gpu_recovered", "info", "GPU 3 is back"))
    assert not Alert.objects.filter(state=IncidentState.FIRING).exists()
    assert acting.look().state == State.REMEDIATING
    assert acting.act() == [("start", "e1")]
    assert acting.look().state == State.VERIFYING
    assert said(acting.look(61)) == ("remediated", "well again, and back in service")
    assert not Node.objects.get(name="n1").cordoned
    assert not Engine.objects.exclude(held_out_by="").exists()


def test_a_person_who_ends_the_incident_ends_the_repair_at_any_step(acting: World, post: Post) -> None:
    post(lost())
    row = acted(acting, 2)
    assert row.state == State.REMEDIATING
    acting.rest.post(f"/incidents/{row.incident_id}/resolve", {})
    ended = acting.look()
    assert said(ended) == ("cancelled", "the fault has ended; nothing more is done")
    assert set(Act.objects.filter(action="reboot").values_list("state", flat=True)) == {"cancelled"}
    assert not Engine.objects.exclude(held_out_by="").exists()


def test_what_failed_half_way_calls_a_person_also_when_the_fault_is_over(acting: World, post: Post) -> None:
    post(lost())
    acted(acting, 3)
    post(event("gpu_recovered", "info", "GPU 3 is back"))
    assert acting.act("failed", "no such unit") == [("start", "e1")]
    assert acting.look().state == State.FAILED
    for _ in range(2):
        acting.look()
        assert firing() == ["RemediationNeedsPerson"]
    acting.rest.post("/nodes/n1/uncordon", {})
    acting.look()
    assert firing() == []
    assert Alert.objects.filter(labels__alertname="RemediationNeedsPerson").count() == 1


def test_engines_of_what_failed_are_the_persons_who_uncordons_the_node(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acting.look()
    acting.act("failed", "requests still run")
    assert acting.look().state == State.FAILED
    acting.look()
    assert Engine.objects.get(name="e1").held_out_by
    acting.rest.post("/nodes/n1/uncordon", {})
    assert acting.look().state == State.FAILED
    assert not Engine.objects.exclude(held_out_by="").exists()


def test_what_failed_can_be_cancelled(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acting.look()
    acting.act("failed", "requests still run")
    failed = acting.look()
    assert acting.rest.post(f"/remediations/{failed.pk}/cancel", {}).status_code == 200
    acting.look()
    assert not Engine.objects.exclude(held_out_by="").exists()
    assert firing() == ["GpuXid"]
    assert Remediation.objects.get().state == State.CANCELLED


def test_a_command_that_fails_with_several_lines_fails_the_repair(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acted(acting, 2)
    assert acting.act("failed", SEVERAL_LINES) == [("reset_gpu", "n1")]
    failed = acting.look()
    assert failed.state == State.FAILED
    assert failed.said.isprintable()
    assert "2 processes hold it" in failed.said
    assert "RemediationNeedsPerson" in firing()


def test_faults_of_a_group_of_several_nodes_are_repaired_one_by_one(acting: World, post: Post) -> None:
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    route = {"name": "all-in-one", "group_by": ["alertname"], "matchers": [], "receivers": []}
    assert acting.rest.post("/alert-routes", route).status_code == 201
    post(event(detail=XID_95), event(node="n2", detail=XID_95))
    acting.look()
    assert Incident.objects.filter(state=IncidentState.FIRING).count() == 1
    found = Remediation.objects.order_by("node").values_list("node", "cause", "action", "state")
    assert list(found) == [("n1", "xid 95", "reset_gpu", "draining"), ("n2", "xid 95", "reset_gpu", "draining")]
    acting.rest.post("/nodes/n2/uncordon", {})
    acting.look()
    states = dict(Remediation.objects.values_list("node", "state"))
    assert states == {"n1": "draining", "n2": "cancelled"}


def test_two_gpus_of_a_node_call_for_a_person_each_by_itself(acting: World, post: Post) -> None:
    acting.rest.patch("/remediation-policy", {"actions": {"xid 95": "support"}})
    post(event(detail=XID_95), event(detail=XID_95, subject="GPU-4"))
    acting.look()
    acting.look()
    assert firing() == ["GpuXid", "GpuXid", "RemediationNeedsPerson", "RemediationNeedsPerson"]
    one = Incident.objects.get(labels__gpu="GPU-4", labels__alertname="GpuXid")
    acting.rest.post(f"/incidents/{one.pk}/resolve", {})
    acting.look()
    assert firing() == ["GpuXid", "RemediationNeedsPerson"]


def test_an_alert_that_another_repair_needs_too_goes_on(acting: World, post: Post) -> None:
    acting.rest.patch("/remediation-policy", {"actions": {"xid 95": "support"}})
    post(event(detail=XID_95))
    first = acting.look()
    acting.rest.post(f"/incidents/{first.incident_id}/resolve", {})
    post(event(detail=XID_95))
    acting.look()
    acting.look()
    assert Remediation.objects.filter(state=State.ESCALATED).count() == 2
    assert sorted(firing()) == ["GpuXid", "RemediationNeedsPerson"]


def test_a_number_that_nobody_can_store_keeps_no_other_repair_waiting(acting: World, post: Post) -> None:
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    post(event(detail=f"XID {'9' * 400} (unknown) on GPU 3"), lost(node="n2"))
    acting.look()
    assert list(Remediation.objects.values_list("node", "state")) == [("n2", "draining")]


def test_a_fault_that_cannot_be_begun_keeps_no_other_waiting(
    acting: World, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = beginning._begin

    def ill(fault: Alert, now: object) -> bool:
        if fault.labels["node"] == "n1":
            raise RuntimeError("ill")
        return begin(fault, now)  # type: ignore[arg-type]

    monkeypatch.setattr(beginning, "_begin", ill)
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    post(lost(), lost(node="n2"))
    acting.look()
    assert list(Remediation.objects.values_list("node", "state")) == [("n2", "draining")]


def test_what_waited_for_the_breaker_begins_one_window_after_the_other(acting: World, post: Post) -> None:
    acting.rest.patch("/remediation-policy", {"min_nodes": 1})
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    post(lost(), lost(node="n2"), lost(node="n3"))
    acting.look()
    acting.look(86_400)
    acting.rest.post("/remediation-policy/reset-breaker", {})
    acting.look()
    assert sorted(Remediation.objects.values_list("state", flat=True)) == ["draining", "draining", "held"]
    assert acting.rest.get("/remediation-policy").json()["tripped_at"]
    trips = AuditEntry.objects.filter(noun="remediation policy", actor_kind="system")
    assert [(entry.after or {})["tripped_because"][:7] for entry in trips] == ["1 other", "1 other"]


def test_of_two_workers_at_once_only_one_node_is_taken_in_hand(
    acting: World, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first has decided, and has not yet written."""
    acting.rest.patch("/remediation-policy", {"min_nodes": 1})
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    post(lost(), lost(node="n2"))
    carry_out = services.carry_out
    others: list[int] = []

    def slow(row: Remediation, *given: object, **named: object) -> None:
        if row.node == "n1" and not others:
            others.append(1)
            runner._look(Remediation.objects.get(node="n2").pk, acting.now)
        carry_out(row, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(services, "carry_out", slow)
    acting.look()
    assert dict(Remediation.objects.values_list("node", "state")) == {"n1": "held", "n2": "draining"}


def test_no_act_follows_a_person_who_has_just_uncordoned_the_node(
    acting: World, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(event(detail=XID_95))
    acted(acting, 1)
    acting.act()
    gather = facts.gather
    hands: list[object] = []

    def then_a_person(*given: object) -> object:
        seen = gather(*given)  # type: ignore[arg-type]
        if not hands:
            hands.append(acting.rest.post("/nodes/n1/uncordon", {}))
        return seen

    monkeypatch.setattr(facts, "gather", then_a_person)
    acting.look()
    assert not Act.objects.filter(action="reset_gpu").exists()
    assert acting.look().state == State.CANCELLED


def test_a_person_who_cordons_the_node_anew_keeps_it_cordoned(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acted(acting, 4)
    acting.rest.post("/nodes/n1/cordon?reason=the+fan+is+next", {})
    done = acting.look(61)
    assert said(done) == ("remediated", "well again; a person cordoned the node, and may take that back")
    assert Node.objects.get(name="n1").cordoned


def test_the_second_fault_of_a_node_that_the_policy_cordoned_finds_its_cordon(acting: World, post: Post) -> None:
    acting.rest.patch("/remediation-policy", {"actions": {"xid 95": "none"}})
    post(event(detail=XID_95), lost())
    acted(acting, 4)
    assert said(acting.look(61)) == ("remediated", "well again, and back in service")


def test_a_node_whose_agent_falls_silent_is_not_well(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    assert acted(acting, 4).state == State.VERIFYING
    acting.look()
    assert said(acting.look(61, silent=True)) == ("verifying", "waits for the node's agent to be well")
    assert said(acting.look(700, silent=True)) == ("failed", "not well after the repair: the node's agent")
    assert Node.objects.get(name="n1").cordoned


def test_a_notice_that_the_node_is_taken_away_is_no_fault_that_came_back(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    assert acted(acting, 4).state == State.VERIFYING
    acted_at = Act.objects.latest("pk").state_at - timedelta(hours=1)
    Act.objects.update(state_at=acted_at)
    NodeEvent.objects.update(at=acted_at, received_at=acted_at)
    post(event("spot_notice", detail="the provider takes n1 away in 120 s", subject="n1"))
    acting.look()
    assert said(acting.look(61)) == (
        "remediated", "well again; the cordon stays for n1: the provider takes n1 away in 120 s",
    )  # fmt: skip
    assert Node.objects.get(name="n1").cordoned


def test_a_gpu_that_its_agent_no_longer_reports_is_not_well(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    assert acted(acting, 4).state == State.VERIFYING
    Gpu.objects.all().delete()
    assert said(acting.look(61)) == ("verifying", "waits for GPU GPU-3 to be well")
    assert acting.look(700).state == State.FAILED
    assert firing().count("RemediationNeedsPerson") == 1


def test_an_engine_that_a_rollout_takes_first_is_waited_for(
    acting: World, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(event(detail=XID_95))
    gather = facts.gather
    held: list[Engine] = []

    def then_a_rollout(*given: object) -> object:
        seen = gather(*given)  # type: ignore[arg-type]
        if not held and given[0].state == State.QUARANTINED:  # type: ignore[attr-defined]
            with unit_of_work(SYSTEM, "a step") as unit:
                held.append(ENGINES.hold_out(unit, "e1", "rollout 7"))
        return seen

    monkeypatch.setattr(facts, "gather", then_a_rollout)
    acting.look()
    waiting = acting.look()
    assert said(waiting) == ("quarantined", "waits for what holds out e1 (rollout 7)")
    with unit_of_work(SYSTEM, "a step") as unit:
        ENGINES.put_back(unit, "e1", "rollout 7")
    assert acting.look().state == State.DRAINING


def test_a_node_that_is_removed_meanwhile_ends_its_repair(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acting.look()
    acting.act()
    Target.objects.update(revoked_at=acting.now)
    with unit_of_work(SYSTEM, "scrapped") as unit:
        ENGINES.delete(unit, "e1")
        NODES.delete(unit, "n1")
    ended = acting.look()
    assert ended.state == State.CANCELLED
    assert firing() == []


def test_a_worker_that_is_killed_between_decisions_leaves_all_to_the_next(
    acting: World, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(event(detail=XID_95))
    carry_out = services.carry_out

    class Killed(BaseException): ...

    def dies(*given: object, **named: object) -> None:
        carry_out(*given, **named)  # type: ignore[arg-type]
        raise Killed

    for _ in range(12):
        if Remediation.objects.filter(state=State.REMEDIATED).exists():
            break
        monkeypatch.setattr(services, "carry_out", dies)
        with pytest.raises(Killed):
            acting.look(61)
        monkeypatch.undo()
        acting.act()
    assert Remediation.objects.get().state == State.REMEDIATED
    assert sorted(Act.objects.values_list("action", flat=True)) == ["drain", "reset_gpu", "start", "stop"]


@pytest.mark.parametrize(
    "body",
    [
        {"actions": {"xid\u000079": "none"}},
        {"actions": {"xid 79\ud800": "none"}},
        {"actions": {f"xid {number}": "none" for number in range(201)}},
        {"actions": {"x" * 65: "none"}},
        {"actions": {"": "none"}},
        {"actions": []},
        {"actions": {"xid 79": None}},
        {"actions": {"xid 79": {"deep": "none"}}},
        {"mode": None},
        {"min_nodes": True},
        {"window_ms": 10**30},
        {"verify_ms": 1.5},
        {"tripped_at": None},
        {"max_nodes_permille": 1001},
    ],
    ids=lambda body: str(body)[:30].encode("ascii", "replace").decode(),
)
def test_a_policy_that_cannot_be_kept_is_refused_by_name(acting: World, body: dict[str, object]) -> None:
    answer = acting.rest.patch("/remediation-policy", body)
    assert answer.status_code in (400, 422), answer.content
    assert acting.rest.get("/remediation-policy").json()["actions"] == {}
