"""From a fault of the hardware to a node that is back in service: what is written, and what people can do about it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.alerts.models import Incident, IncidentState
from controlplane.core.models import AuditEntry, Role
from controlplane.fleet.models import Act, Engine, Node
from controlplane.remediation import services
from controlplane.remediation.machine import Decision
from controlplane.remediation.models import Remediation, State
from tests.controlplane.alerts.conftest import event
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of
from tests.controlplane.remediation.conftest import XID_95, Post, World, firing, said


def test_it_observes_until_a_person_has_it_act(world: World, policy_on: None, post: Post) -> None:
    post(event())
    assert said(world.look()) == ("observed", "would reboot; the policy observes only")
    assert not Act.objects.exists()
    assert not Engine.objects.exclude(held_out_by="").exists()
    assert Remediation.objects.count() == 1
    world.look()
    assert Remediation.objects.count() == 1


def test_what_it_would_do_is_said_in_words(world: World, policy_on: None, post: Post) -> None:
    post(event(detail=XID_95))
    assert said(world.look()) == ("observed", "would reset gpu; the policy observes only")


def test_a_faulty_gpu_is_drained_reset_verified_and_back_in_service(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    assert acting.look().state == State.DRAINING
    assert Engine.objects.get(name="e1").held_out_by.startswith("remediation ")
    assert acting.act() == [("drain", "e1")]
    assert acting.look().state == State.REMEDIATING
    assert acting.act() == [("stop", "e1")]
    acting.look()
    assert Act.objects.get(action="reset_gpu").arguments == {"gpu": "GPU-3"}
    assert acting.act() == [("reset_gpu", "n1")]
    acting.look()
    assert acting.act() == [("start", "e1")]
    assert acting.look().state == State.VERIFYING
    assert Node.objects.get(name="n1").cordoned
    done = acting.look(61)
    assert said(done) == ("remediated", "well again, and back in service")
    assert not Node.objects.get(name="n1").cordoned
    assert not Engine.objects.exclude(held_out_by="").exists()
    incident = Incident.objects.get()
    assert incident.state == IncidentState.RESOLVED
    told = list(incident.entries.filter(kind="remediation").values_list("details__state", flat=True))
    assert told == ["held", "quarantined", "draining", "drained", "remediating", "verifying", "remediated"]
    assert AuditEntry.objects.filter(noun="remediation", key=str(done.pk)).count() >= len(told)


def test_a_cordon_that_a_person_set_stays_theirs(acting: World, post: Post) -> None:
    acting.rest.patch("/cordon-policy", {"enabled": False})
    post(event(detail=XID_95))
    assert said(acting.look())[0] == "held"
    acting.rest.post("/nodes/n1/cordon", {})
    assert acting.look().state == State.DRAINING
    for _ in range(4):
        acting.act()
        acting.look()
    done = acting.look(61)
    assert said(done) == ("remediated", "well again; a person cordoned the node, and may take that back")
    assert Node.objects.get(name="n1").cordoned


def test_a_person_who_uncordons_the_node_ends_it(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acting.look()
    acting.rest.post("/nodes/n1/uncordon", {})
    ended = acting.look()
    assert ended.state == State.CANCELLED
    assert Act.objects.get().state == "cancelled"
    assert not Engine.objects.exclude(held_out_by="").exists()
    post(event(detail=XID_95))


def test_what_fails_stays_out_of_service_and_calls_a_person_until_it_is_tried_again(
    acting: World,
    post: Post,
) -> None:
    post(event(detail=XID_95))
    acting.look()
    acting.act("failed", "requests still run")
    failed = acting.look()
    assert said(failed) == ("failed", "could not be drained: drain e1 failed: requests still run")
    assert Node.objects.get(name="n1").cordoned
    assert Engine.objects.get(name="e1").held_out_by
    assert firing() == ["GpuXid", "RemediationNeedsPerson"]
    assert acting.rest.post(f"/remediations/{failed.pk}/act", {}).status_code == 200
    assert acting.look().state == State.DRAINING
    assert firing() == ["GpuXid"]


def test_what_strikes_too_many_nodes_trips_a_breaker_that_a_person_alone_resets(
    acting: World,
    post: Post,
) -> None:
    acting.rest.patch("/remediation-policy", {"min_nodes": 1})
    acting.rest.patch("/cordon-policy", {"max_nodes_permille": 1000})
    post(event(), event(node="n2"))
    acting.look()
    states = dict(Remediation.objects.values_list("node", "state"))
    assert states == {"n1": "draining", "n2": "held"}
    assert Remediation.objects.get(node="n2").said.startswith("the breaker is tripped: 1 other nodes were taken")
    tripped = acting.rest.get("/remediation-policy").json()
    assert tripped["tripped_at"]
    acting.look(86_400)
    assert Remediation.objects.get(node="n2").state == State.HELD
    assert acting.rest.post("/remediation-policy/reset-breaker", {}).status_code == 200
    acting.look(3_600)
    assert Remediation.objects.get(node="n2").state == State.DRAINING


def test_a_fault_that_comes_back_while_it_is_verified_is_a_persons(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    acting.look()
    for _ in range(4):
        acting.act()
        acting.look()
    assert Remediation.objects.get().state == State.VERIFYING
    acted = Act.objects.latest("pk").state_at
    Act.objects.update(state_at=acted - timedelta(hours=1))
    post(event(detail=XID_95))
    escalated = acting.look()
    assert escalated.state == State.ESCALATED
    assert escalated.said.startswith("the fault came back: XID 95")
    assert "RemediationNeedsPerson" in firing()


def test_after_many_repairs_a_person_must_look(acting: World, post: Post) -> None:
    acting.rest.patch("/remediation-policy", {"max_of_a_fault": 1})
    before = timezone.now() - timedelta(hours=2)
    _ended("n1", before)
    post(event(detail=XID_95))
    assert said(acting.look()) == (
        "escalated", "the same fault came 1 times within a day; 1 is the most without a person",
    )  # fmt: skip


def _ended(node: str, at: datetime) -> None:
    Remediation.objects.create(
        node=node, gpu="GPU-3", cause="xid 95", action="reset_gpu", state=State.REMEDIATED,
        begun_at=at, state_at=at, ended_at=at, look_at=at,
    )  # fmt: skip


def test_a_cancelled_repair_stays_in_a_persons_hands(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    opened = acting.look()
    assert acting.rest.post(f"/remediations/{opened.pk}/cancel", {}).status_code == 200
    acting.look()
    assert list(Remediation.objects.values_list("state", flat=True)) == ["cancelled"]
    assert Node.objects.get(name="n1").cordoned
    assert not Engine.objects.exclude(held_out_by="").exists()


def test_what_was_decided_of_another_state_changes_nothing(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    row = acting.look()
    stale = Remediation.objects.get(pk=row.pk)
    stale.state_at -= timedelta(seconds=1)
    decision = Decision(State.DRAINED, "drained")
    with pytest.raises(services.Outdated):
        services.carry_out(stale, decision, acting.now)
    assert Remediation.objects.get(pk=row.pk).state == State.DRAINING


def test_the_policy_refuses_what_it_does_not_know(acting: World) -> None:
    answer = acting.rest.patch("/remediation-policy", {"actions": {"xid 79": "explode"}, "mode": "maybe"})
    assert answer.status_code == 422
    assert {each["path"] for each in answer.json()["problems"]} == {"/actions/xid 79", "/mode"}
    changed = acting.rest.patch("/remediation-policy", {"actions": {"xid 79": "support"}})
    assert changed.status_code == 200
    assert acting.rest.get("/remediation-policy/actions").json()["actions"]["xid 79"] == "support"


def test_who_may_do_what(acting: World, post: Post) -> None:
    post(event(detail=XID_95))
    key = acting.look().pk
    viewer, operator = token_of(person(Role.VIEWER)), token_of(person(Role.OPERATOR))
    for rest in (viewer, operator):
        assert rest.get("/remediations").json()["items"][0]["id"] == key
        assert rest.get("/remediation-policy").status_code == 200
        assert rest.patch("/remediation-policy", {"mode": "observe"}).status_code == 403
    assert viewer.post(f"/remediations/{key}/cancel", {}).status_code == 403
    assert viewer.post("/remediation-policy/reset-breaker", {}).status_code == 403
    assert operator.post("/remediation-policy/reset-breaker", {}).status_code == 200
    assert operator.post(f"/remediations/{key}/cancel", {}).status_code == 200
    assert Rest(None).get("/remediations").status_code == 401
