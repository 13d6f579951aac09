"""A fault of the hardware takes its node out of service, within the policy, in one transaction with its incident."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Incident, IncidentEntry, NodeEvent, PolicyCordon
from controlplane.alerts.services import cordons, policy
from controlplane.alerts.services.events import take_events
from controlplane.alerts.services.settling import resolve_reported_well
from controlplane.configs import history
from controlplane.configs.hub import heads
from controlplane.configs.models import Fragment, Revision
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Node
from controlplane.fleet.services import NODES, take_report
from tests.controlplane.alerts.conftest import XID_79, event, target
from tests.controlplane.alerts.incident import opened, resolved
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once, meeting, two_writers
from wire.messages import Event, NodeReport

Post = Callable[..., None]


def last_entry(node: str = "n1") -> IncidentEntry:
    entry = Incident.objects.filter(node=node).latest("pk").entries.order_by("pk").last()
    assert entry is not None
    return entry


def cordoned() -> list[str]:
    return list(Node.objects.filter(cordoned=True).order_by("name").values_list("name", flat=True))


def stored() -> int:
    return NodeEvent.objects.count() + Incident.objects.count()


# Within the policy


@pytest.mark.usefixtures("policy_on")
def test_a_critical_xid_cordons_its_node_and_names_the_revision_that_does(post: Post) -> None:
    post(event())
    incident = Incident.objects.get()
    assert (incident.title, incident.severity, incident.node) == (
        "n1: XID 79 (GPU has fallen off the bus) on GPU 3 (H100, 0000:41:00.0)", "critical", "n1",
    )  # fmt: skip
    assert incident.annotations["verdict"] == "hardware_fault"
    entry = last_entry()
    newest = Revision.objects.latest("number")
    assert (entry.kind, entry.details["reason"], entry.details["revision"]) == ("cordoned", "policy", newest.number)
    assert newest.patch == {
        "engines": {"e1": {"cordoned": True}},
        "nodes": {"n1": {"cordoned": True, "cordon_reason": XID_79}},
    }
    audited = AuditEntry.objects.get(change_id=entry.details["change_id"])
    assert (audited.actor_kind, audited.actor, audited.reason) == ("target", "node/n1", XID_79)
    assert (audited.noun, audited.key, audited.revision) == ("node", "n1", newest.number)
    assert not Fragment.objects.filter(dirty=True).exists()
    assert PolicyCordon.objects.get().incident == incident
    post(event())
    assert last_entry().kind == "event"
    assert Revision.objects.latest("number") == newest


@pytest.mark.usefixtures("policy_on")
@pytest.mark.parametrize(
    ("kind", "severity", "expected"),
    [
        ("gpu_lost", "critical", ["n1"]),
        ("sxid", "critical", ["n1"]),
        ("xid", "warning", []),
        ("gpu_unresponsive", "critical", []),
        ("nvml_failed", "critical", []),
        ("engine_down", "critical", []),
    ],
)
def test_only_a_critical_fault_of_the_hardware_does(post: Post, kind: str, severity: str, expected: list[str]) -> None:
    post(event(kind, severity))
    assert cordoned() == expected
    assert Incident.objects.count() == 1


@pytest.mark.usefixtures("policy_on")
def test_the_gateway_hears_of_it_in_its_next_slice(post: Post) -> None:
    post(event())
    head = heads.refresh()
    assert head is not None
    engines = head.slice("gateway", "gw").content["engines"]
    assert {name for name, engine in engines.items() if engine["cordoned"]} == {"e1"}


@pytest.mark.usefixtures("policy_on")
def test_a_second_fault_of_a_cordoned_node_says_so_once(post: Post, operator: Rest) -> None:
    operator.post("/nodes/n1/cordon?reason=a+broken+fan")
    post(event())
    post(event())
    entries = Incident.objects.get().entries.filter(kind="cordoned")
    assert [(entry.text, entry.details) for entry in entries] == [
        ("the node was cordoned already: a broken fan", {"node": "n1", "reason": "already"})
    ]
    assert Node.objects.get(name="n1").cordon_reason == "a broken fan"
    assert not PolicyCordon.objects.exists()


@pytest.mark.usefixtures("policy_on")
def test_what_a_driver_says_is_made_a_reason_that_the_audit_takes(post: Post) -> None:
    post(event(detail="XID 79\x1b[31m\n off\tthe\x00bus" + "!" * 600))
    reason = Node.objects.get(name="n1").cordon_reason
    assert reason.startswith("XID 79 [31m off the\ufffdbus!!!")
    assert len(reason) == 500
    post(event(detail="  \n", node="n2", kind="gpu_lost"))
    assert last_entry("n2").details["reason"] == "limit"


@pytest.mark.usefixtures("policy_on")
def test_a_fault_without_words_cordons_too(post: Post) -> None:
    post(event("gpu_lost", detail=" \n"))
    assert cordoned() == ["n1"]


# Beyond it


def test_the_policy_is_off_until_someone_turns_it_on(post: Post, fleet: Rest) -> None:
    revisions = Revision.objects.count()
    post(event())
    post(event())
    entry = last_entry()
    assert (entry.kind, entry.text, entry.details) == ("event", XID_79, entry.details)
    said = IncidentEntry.objects.get(kind="not_cordoned")
    assert (said.text, said.details) == ("policy is off", {"node": "n1", "reason": "policy_off"})
    assert (cordoned(), Revision.objects.count()) == ([], revisions)
    fleet.patch("/cordon-policy", {"enabled": True})
    post(event())
    assert cordoned() == ["n1"]


@pytest.mark.usefixtures("policy_on")
def test_beyond_its_limit_a_person_decides_and_the_numbers_are_said(post: Post, fleet: Rest) -> None:
    post(event(), event(node="n2"))
    entry = last_entry("n2")
    assert (entry.kind, entry.details) == (
        "not_cordoned", {"node": "n2", "reason": "limit", "cordoned": 1, "allowed": 1, "nodes": 3}
    )  # fmt: skip
    assert entry.text == (
        "the policy cordoned 1 other nodes within 300 s and may cordon 1 of 3 (20 %, at least 1); decide by hand"
    )
    assert cordoned() == ["n1"]
    fleet.patch("/cordon-policy", {"max_nodes_permille": 700})
    post(event(node="n2"), event(node="n3"))
    assert cordoned() == ["n1", "n2"]


@pytest.mark.usefixtures("policy_on")
def test_the_limit_counts_what_happened_within_its_window(post: Post) -> None:
    post(event())
    PolicyCordon.objects.update(at=timezone.now() - timedelta(seconds=301))
    post(event(node="n2"))
    assert cordoned() == ["n1", "n2"]


@pytest.mark.usefixtures("policy_on")
def test_a_node_that_fails_again_uses_no_more_of_the_limit(post: Post, operator: Rest) -> None:
    post(event())
    operator.post("/nodes/n1/uncordon")
    post(event())
    assert cordoned() == ["n1"]
    assert PolicyCordon.objects.count() == 2


@pytest.mark.usefixtures("policy_on")
def test_a_refused_cordon_is_undone_alone_and_the_incident_opens(post: Post) -> None:
    Fragment.objects.filter(section="pools").delete()
    revisions = Revision.objects.count()
    post(event())
    entry = last_entry()
    assert (entry.kind, entry.details) == ("not_cordoned", {"node": "n1", "reason": "refused"})
    assert entry.text.startswith("refused: /engines/e1/pool")
    assert (cordoned(), Revision.objects.count()) == ([], revisions)
    assert not AuditEntry.objects.filter(actor="node/n1").exists()
    assert NodeEvent.objects.get().incident == Incident.objects.get()


@pytest.mark.usefixtures("policy_on")
def test_what_passes_by_itself_leaves_the_event_to_be_sent_again(fleet: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, sent = target("node", "n1"), event()
    damaged = history.Damaged("revision 7 is damaged", retry_after_seconds=1)
    monkeypatch.setattr(heads, "damaged", damaged)

    def refuse() -> None:
        raise damaged

    monkeypatch.setattr(heads, "refresh", refuse)
    assert agent.post("/events", [sent]).status_code == 503
    assert stored() == 0
    monkeypatch.undo()
    assert agent.post("/events", [sent]).status_code == 200
    assert cordoned() == ["n1"]


@pytest.mark.usefixtures("policy_on")
def test_a_revision_that_cannot_be_made_leaves_neither_cordon_nor_incident(
    fleet: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_known: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(cordons, "publish", fail)
    with pytest.raises(RuntimeError):
        take_events("n1", [told("n1")], timezone.now())
    assert (stored(), cordoned()) == (0, [])


# At once


def told(node: str, kind: str = "xid") -> Event:
    return Event(f"event-of-{node}-{kind}", 0, kind, "GPU-3", "critical", XID_79, node)


def write_fleet(*nodes: str) -> None:
    with unit_of_work(SYSTEM, "a fleet") as unit:
        for name in nodes:
            NODES.create(unit, name, {})
        policy.update(unit, {"enabled": True})


@two_writers
@pytest.mark.django_db(transaction=True)
def test_nodes_that_fail_at_once_do_not_pass_the_limit() -> None:
    names = ("n1", "n2", "n3")
    write_fleet(*names)
    acts = [partial(take_events, name, [told(name)], timezone.now()) for name in names]
    assert at_once(*acts) == [None] * 3
    assert len(cordoned()) == PolicyCordon.objects.count() == 1
    said = IncidentEntry.objects.exclude(kind="started").values_list("kind", flat=True)
    assert sorted(said) == ["cordoned", "not_cordoned", "not_cordoned"]


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_fault_and_a_persons_writes_to_its_node_do_not_wait_for_each_other_forever() -> None:
    write_fleet("n1")

    def uncordon() -> None:
        with unit_of_work(SYSTEM, "repaired") as unit:
            NODES.uncordon(unit, "n1")

    def report() -> None:
        take_report("n1", NodeReport(version="1"), timezone.now())

    fault = partial(take_events, "n1", [told("n1"), told("n1", "gpu_lost")], timezone.now())
    assert at_once(fault, uncordon, report, fault, uncordon) == [None] * 5
    firing = Incident.objects.filter(state="firing").exists()
    assert (cordoned() == ["n1"]) == firing


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_person_and_a_rule_that_end_incidents_of_one_node_do_not_wait_for_each_other_forever() -> None:
    write_fleet("n1")
    older, newer = (opened(source="rule", alertname=f"Rule{number}") for number in (1, 2))
    with unit_of_work(SYSTEM, "a repair") as unit:
        NODES.cordon(unit, "n1")
    held, noted = meeting(), meeting()

    def end_both() -> None:
        with transaction.atomic():
            resolved(newer)
            held()
            noted()
            resolved(older)

    def uncordon() -> None:
        with unit_of_work(SYSTEM, "repaired") as unit:
            NODES.uncordon(unit, "n1")
            held()
        noted()

    assert at_once(end_both, uncordon) == [None] * 2


@two_writers
@pytest.mark.django_db(transaction=True)
def test_what_writes_no_configuration_does_not_wait_for_those_who_do() -> None:
    write_fleet("n1")
    taken = threading.Event()

    def hold() -> None:
        with unit_of_work(SYSTEM, "a long write"):
            assert taken.wait(10), "the event waited for this write"

    def take() -> None:
        take_events("n1", [told("n1", "gpu_unresponsive")], timezone.now())
        taken.set()

    assert at_once(hold, take) == [None, None]


# The policy's row


def test_the_policy_is_read_and_changed_with_an_audit(fleet: Rest) -> None:
    default = {"enabled": False, "max_nodes_permille": 200, "min_nodes": 1, "window_ms": 300_000}
    assert fleet.get("/cordon-policy").json() == default
    answer = fleet.patch("/cordon-policy", {"enabled": True, "min_nodes": 2})
    wanted = {**default, "enabled": True, "min_nodes": 2}
    assert (answer.status_code, answer.json()["item"]) == (200, wanted)
    assert fleet.get("/cordon-policy").json() == wanted
    audited = AuditEntry.objects.latest("pk")
    assert (audited.noun, audited.before, audited.after) == ("cordon policy", default, wanted)
    assert fleet.patch("/cordon-policy?dry_run=true&reason=a+try", {"enabled": False}).status_code == 200
    assert fleet.get("/cordon-policy").json() == wanted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enabled", "yes"),
        ("max_nodes_permille", 1001),
        ("min_nodes", -1),
        ("min_nodes", 2**40),
        ("window_ms", 999),
        ("window_ms", 2**60),
        ("unknown", 1),
    ],
)
def test_a_policy_that_cannot_be_is_refused(fleet: Rest, field: str, value: object) -> None:
    answer = fleet.patch("/cordon-policy", {field: value})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [f"/{field}"]


@pytest.mark.usefixtures("policy_on")
def test_a_spot_notice_cordons_its_node_and_holds_until_it_is_taken_back(post: Post) -> None:
    detail = "this machine will be taken away in 118 s, at 2026-03-01 12:02:00 UTC: AWS will terminate it"
    post(event(kind="spot_notice", subject="n1", detail=detail))
    incident = Incident.objects.get()
    assert incident.labels == {"alertname": "SpotNotice", "node": "n1"}
    assert incident.annotations["verdict"] == "leaving"
    assert last_entry().kind == "cordoned"
    assert cordoned() == ["n1"]
    # Its GPUs are well, which says nothing of it.
    Node.objects.update(gpu_source="nvml", gpu_problems=[], reported_at=timezone.now() + timedelta(hours=1))
    assert resolve_reported_well(timezone.now()) == 0
    post(event(kind="spot_notice_ended", subject="n1", severity="info", detail="this machine stays after all"))
    incident.refresh_from_db()
    assert incident.state == "resolved"
    assert cordoned() == ["n1"], "a person decides"


@pytest.mark.usefixtures("policy_on")
def test_the_time_line_says_what_lower_classes_have_to_leave_since(fleet: Rest, post: Post) -> None:
    fleet.post("/priority-classes", {"name": "overnight", "rank": 9, "kv_ceiling_permille": 800})
    post(event())
    # Of three equal engines, two are left to keep what was kept on all of them.
    assert last_entry().text == (
        "node n1 is cordoned by the policy; of pool short the class overnight may fill 70 %, no more 80 %"
    )
