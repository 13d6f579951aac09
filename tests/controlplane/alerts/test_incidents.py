"""Incidents from start to end, what people do to them, and what of them is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.alerts import incidents_api
from controlplane.alerts.models import Incident, IncidentEntry, IncidentState, NodeEvent
from controlplane.alerts.services import alerts, deliveries, incident_acts, incidents
from controlplane.alerts.services.settling import SETTLE
from controlplane.alerts.tasks import prune, settle_incidents
from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import Node
from controlplane.fleet.services import take_report
from tests.controlplane.alerts.conftest import event
from tests.controlplane.alerts.incident import receiver
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once, two_writers
from wire.messages import EngineReport, GpuReport, NodeReport

Post = Callable[..., None]
LABELS = {"alertname": "HighTtft", "pool": "short"}


def open_one(severity: str = "warning", **labels: str) -> tuple[Incident, bool]:
    """An alert of a rule, and so the incident of its group; whether the alert is new."""
    with transaction.atomic():
        alert, new = alerts.open_alert(
            labels={**LABELS, **labels},
            source="rule",
            severity=severity,
            title="TTFT is high",
            annotations={},
            at=timezone.now(),
            text="0.9 s",
        )
    return Incident.objects.get(pk=alert.incident_id), new


def texts(incident: Incident) -> list[tuple[str, str]]:
    return list(incident.entries.order_by("pk").values_list("kind", "text"))


# Start and end


@pytest.mark.django_db
def test_the_same_labels_are_one_incident_until_it_ends() -> None:
    first, new = open_one()
    assert new
    assert open_one() == (first, False)
    assert open_one(pool="long")[1]
    with transaction.atomic():
        assert incident_acts.end(first, timezone.now(), "gone")
        assert not incident_acts.end(first, timezone.now(), "gone again")
    assert [kind for kind, _ in texts(first)] == ["started", "resolved"]
    again, new = open_one()
    assert (new, again.pk != first.pk) == (True, True)


def test_the_fingerprint_is_of_the_labels_whatever_their_order() -> None:
    assert incidents.fingerprint({"a": "1", "b": "2"}) == incidents.fingerprint({"b": "2", "a": "1"})
    assert incidents.fingerprint({"a": "1", "b": "2"}) != incidents.fingerprint({"a": "1", "b": "3"})


@pytest.mark.django_db
def test_severity_rises_and_never_falls() -> None:
    for severity, expected in (("warning", "warning"), ("critical", "critical"), ("info", "critical")):
        assert open_one(severity)[0].severity == expected
    assert Incident.objects.get().severity == "critical"


@pytest.mark.django_db
def test_it_never_ends_before_it_started() -> None:
    incident, _ = open_one()
    incident_acts.end(incident, incident.started_at - timedelta(hours=1), "a clock that is behind")
    assert Incident.objects.get().resolved_at == incident.started_at


@two_writers
@pytest.mark.django_db(transaction=True)
def test_two_that_open_it_at_once_open_one() -> None:
    opened: list[tuple[Incident, bool]] = []
    assert at_once(*[lambda: opened.append(open_one())] * 4) == [None] * 4
    assert sorted(new for _, new in opened) == [False, False, False, True]
    assert Incident.objects.count() == IncidentEntry.objects.count() == 1


@two_writers
@pytest.mark.django_db(transaction=True)
def test_two_that_end_it_at_once_end_it_once() -> None:
    incident, _ = open_one()
    ended: list[bool] = []

    def end() -> None:
        with transaction.atomic():
            ended.append(incident_acts.end(Incident.objects.get(pk=incident.pk), timezone.now(), "gone"))

    assert at_once(end, end) == [None] * 2
    assert sorted(ended) == [False, True]
    assert incident.entries.filter(kind="resolved").count() == 1


# What people do


def test_a_person_ends_it_with_a_reason_that_is_kept(post: Post, operator: Rest) -> None:
    post(event())
    incident = Incident.objects.get()
    answer = operator.post(f"/incidents/{incident.pk}/resolve?reason=GPU+replaced")
    assert (answer.status_code, answer.json()["item"]["state"]) == (200, "resolved")
    assert answer["ETag"] == operator.get(f"/incidents/{incident.pk}")["ETag"]
    kind, text = texts(incident)[-1]
    assert kind == "resolved"
    assert text.startswith("resolved by operator-")
    assert text.endswith(": GPU replaced")
    audited = AuditEntry.objects.latest("pk")
    assert (audited.noun, audited.key, audited.reason) == ("incident", str(incident.pk), "GPU replaced")
    assert operator.post(f"/incidents/{incident.pk}/resolve").status_code == 200
    assert AuditEntry.objects.latest("pk") == audited
    assert operator.post("/incidents/999999/resolve").status_code == 404


def test_a_dry_run_ends_nothing(post: Post, operator: Rest) -> None:
    post(event())
    path = f"/incidents/{Incident.objects.get().pk}/resolve?dry_run=true&reason=a+try"
    assert operator.post(path).json()["item"]["state"] == "resolved"
    assert Incident.objects.get().state == IncidentState.FIRING


@pytest.mark.usefixtures("policy_on")
def test_uncordoning_a_node_ends_its_hardware_incidents_in_the_same_write(post: Post, operator: Rest) -> None:
    post(event(), event("gpu_lost"), event("engine_down", subject="e1"), event(node="n2"))
    answer = operator.post("/nodes/n1/uncordon?reason=GPU+replaced")
    assert answer.status_code == 200
    states = {(one.node, one.labels["alertname"]): one.state for one in Incident.objects.all()}
    assert states == {
        ("n1", "GpuXid"): "resolved",
        ("n1", "GpuLost"): "resolved",
        ("n1", "EngineDown"): "firing",
        ("n2", "GpuXid"): "firing",
    }
    change_id = answer.json()["change_id"]
    for incident in Incident.objects.filter(node="n1"):
        entry = incident.entries.get(kind="uncordoned")
        assert entry.text.startswith("uncordoned by operator-")
        assert entry.text.endswith(": GPU replaced")
        assert entry.details["change_id"] == change_id


def test_what_a_rule_says_of_a_node_ends_by_the_rule_alone(post: Post, fleet: Rest) -> None:
    incident, _ = open_one(node="n2")
    fleet.post("/nodes/n2/cordon")
    fleet.post("/nodes/n2/uncordon")
    fleet.delete("/engines/e2")
    fleet.post(f"/targets/{_target_id('n2')}/revoke")
    assert fleet.delete("/nodes/n2").status_code == 200
    assert [kind for kind, _ in texts(incident)] == ["started", "cordoned", "uncordoned"]
    assert Incident.objects.get().state == IncidentState.FIRING


def test_a_persons_cordon_shows_on_what_fires_there(post: Post, operator: Rest) -> None:
    post(event(), event(node="n2"))
    operator.post("/nodes/n1/cordon?reason=a+look")
    kind, text = texts(Incident.objects.get(node="n1"))[-1]
    assert (kind, text.rpartition(": ")[2]) == ("cordoned", "a look")
    assert not Incident.objects.get(node="n2").entries.filter(kind="cordoned").exists()
    operator.post("/nodes/n1/cordon?reason=another+look")
    assert Incident.objects.get(node="n1").entries.filter(kind="cordoned").count() == 1


@pytest.mark.parametrize("write", ["/nodes/n1/cordon", "/nodes/n1/uncordon"])
@pytest.mark.usefixtures("policy_on")
def test_a_dry_run_of_a_cordon_changes_no_incident(post: Post, operator: Rest, write: str) -> None:
    post(event())
    before = list(IncidentEntry.objects.values())
    assert operator.post(f"{write}?dry_run=true&reason=a+try").status_code == 200
    assert list(IncidentEntry.objects.values()) == before
    assert Incident.objects.get().state == IncidentState.FIRING


@pytest.mark.parametrize("kind", ["engine_down", "engine_hung"])
def test_an_engine_that_is_removed_or_moved_is_ill_no_longer(post: Post, fleet: Rest, kind: str) -> None:
    post(*(event(kind, subject=f"e{number}", node=f"n{number}") for number in (1, 2, 3)))
    assert fleet.delete("/engines/e1").status_code == 200
    assert fleet.patch("/engines/e2", {"node": "n3"}).status_code == 200
    assert fleet.patch("/engines/e3", {"url": "http://10.0.0.9:8000"}).status_code == 200
    firing = Incident.objects.filter(state=IncidentState.FIRING)
    assert [incident.node for incident in firing] == ["n3"]


def test_a_node_that_is_removed_has_no_more_incidents(post: Post, fleet: Rest) -> None:
    post(event(), event(node="n2"))
    fleet.delete("/engines/e1")
    fleet.post(f"/targets/{_target_id('n1')}/revoke")
    assert fleet.delete("/nodes/n1").status_code == 200
    assert not Node.objects.filter(name="n1").exists()
    assert [incident.node for incident in Incident.objects.filter(state=IncidentState.FIRING)] == ["n2"]


def _target_id(name: str) -> int:
    return Target.objects.get(name=name).pk


# Lists


def test_they_are_listed_newest_first_by_state_and_node(post: Post, viewer: Rest, operator: Rest) -> None:
    post(event(), event(node="n2"), event("gpu_lost"))
    first = Incident.objects.earliest("pk")
    operator.post(f"/incidents/{first.pk}/resolve")

    def listed(query: str) -> list[tuple[str, str]]:
        items = viewer.get(f"/incidents{query}").json()["items"]
        return [(item["node"], item["labels"]["alertname"]) for item in items]

    # Bodies are posted a node at a time.
    assert listed("") == [("n2", "GpuXid"), ("n1", "GpuLost"), ("n1", "GpuXid")]
    assert listed("?state=resolved") == [("n1", "GpuXid")]
    assert listed("?state=firing&node=n1") == [("n1", "GpuLost")]
    page = viewer.get("/incidents?limit=2").json()
    assert [item["id"] for item in viewer.get(f"/incidents?after={page['next']}").json()["items"]] == [first.pk]
    assert viewer.get("/incidents?state=open").status_code == 422


@pytest.mark.usefixtures("policy_on")
def test_one_is_shown_with_its_time_line_events_and_deliveries(post: Post, viewer: Rest) -> None:
    sent = event()
    post(sent)
    incident = Incident.objects.get()
    shown = viewer.get(f"/incidents/{incident.pk}").json()
    assert {key: shown[key] for key in incidents.describe(incident)} == incidents.describe(incident)
    assert [entry["kind"] for entry in shown["entries"]] == ["started", "cordoned"]
    assert [told["id"] for told in shown["events"]] == [sent["id"]]
    assert shown["deliveries"] == []
    assert viewer.get("/incidents/999999").status_code == 404


def test_of_one_that_goes_on_for_long_the_last_lines_and_messages_are_shown(
    post: Post, viewer: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incidents_api, "PAGE_ROWS_MAX", 3)
    post(event())
    incident, who = Incident.objects.get(), receiver()
    for number in range(1, 6):
        incidents.note(incident, "comment", f"line {number}", timezone.now())
        with transaction.atomic():
            deliveries.enqueue(incident, [who], occasion="repeat", status="firing")
    shown = viewer.get(f"/incidents/{incident.pk}").json()
    assert [entry["text"] for entry in shown["entries"]] == ["line 3", "line 4", "line 5"]
    assert [each["number"] for each in shown["deliveries"]] == [3, 4, 5]


# What ends by itself, and what is forgotten


def hours_ago(hours: float):
    return timezone.now() - timedelta(hours=hours)


def test_a_warning_that_does_not_come_again_ends_by_itself(post: Post) -> None:
    post(
        event(severity="warning", subject="GPU-0"),
        event(severity="warning", subject="GPU-1"),
        event(severity="critical", subject="GPU-2"),
        event("gpu_error", "warning", subject="GPU-3"),
    )
    NodeEvent.objects.update(received_at=hours_ago(1.1))
    post(event(severity="warning", subject="GPU-1"))
    assert settle_incidents() == 1
    ended = Incident.objects.get(state=IncidentState.RESOLVED)
    assert ended.labels["gpu"] == "GPU-0"
    assert texts(ended)[-1][1].startswith("not seen again since ")
    assert settle_incidents() == 0


def test_what_a_restarted_agent_reports_well_ends_without_an_event(post: Post) -> None:
    post(
        event("engine_down", subject="e1"),
        event("gpu_unresponsive", subject="GPU-0"),
        event("gpu_lost", subject="GPU-1"),
        event("gpu_lost", subject="GPU-2"),
        event("nvml_failed", subject="nvml"),
        event(subject="GPU-0"),
    )
    report = NodeReport(
        version="1",
        gpus=[
            GpuReport(uuid="GPU-0", index=0, model="H100"),
            GpuReport(uuid="GPU-1", index=1, model="H100", state="lost"),
        ],
        engines=[EngineReport(name="e1", state="up")],
        gpu_source="nvml",
    )
    take_report("n1", report, timezone.now())
    assert settle_incidents() == 0, "the report may be older than the event"
    take_report("n1", report, timezone.now() + SETTLE * 2)
    assert settle_incidents() == 3
    ended = Incident.objects.filter(state=IncidentState.RESOLVED).order_by("pk")
    assert [incident.labels["alertname"] for incident in ended] == ["EngineDown", "GpuUnresponsive", "NvmlFailed"]
    assert all(texts(incident)[-1] == ("resolved", "its node reports it well again") for incident in ended)


def test_what_is_still_reported_ill_goes_on(post: Post) -> None:
    post(event("engine_down", subject="e1"), event("nvml_failed", subject="nvml"))
    ill = [EngineReport(name="e1", state="starting")]
    later = timezone.now() + SETTLE * 2
    take_report("n1", NodeReport(version="1", engines=ill, gpu_source="nvml", gpu_problems=["hangs"]), later)
    assert settle_incidents() == 0
    take_report("n1", NodeReport(version="1", engines=ill, gpu_source="none"), later)
    assert settle_incidents() == 0


def test_a_hang_is_over_when_its_engine_is_up_and_nothing_is_said_against_it(post: Post) -> None:
    post(event("engine_hung", subject="e1"))
    later = timezone.now() + SETTLE * 2
    hung = EngineReport(name="e1", state="up", error="hung: requests running 1, nothing moved since 12:00")
    take_report("n1", NodeReport(version="1", engines=[hung]), later)
    assert settle_incidents() == 0
    take_report("n1", NodeReport(version="1", engines=[EngineReport(name="e1", state="up")]), later)
    assert settle_incidents() == 1


@pytest.mark.parametrize(
    ("kind", "ill", "well"),
    [
        ("engine_hung", {"condition": "hung"}, {}),
        ("engine_paused", {"condition": "paused"}, {}),
        # Without probes nothing says that it answers them well again.
        ("engine_probe_failed", {"probes": {}}, {"probes": {"json_schema": "ok"}}),
        ("engine_probe_failed", {"probes": {"json_schema": "failed"}}, {"probes": {"json_schema": "ok"}}),
    ],
)
def test_what_an_engine_that_is_up_still_has_goes_on_until_its_report_says_otherwise(
    post: Post, kind: str, ill: dict[str, Any], well: dict[str, Any]
) -> None:
    post(event(kind, "warning", subject="e1"))
    later = timezone.now() + SETTLE * 2
    for facts, settled in ((ill, 0), (well, 1)):
        take_report("n1", NodeReport(version="1", engines=[EngineReport(name="e1", state="up", **facts)]), later)
        assert settle_incidents() == settled


def test_a_pause_is_over_with_the_next_start_and_one_that_comes_late_opens_nothing(post: Post) -> None:
    told = timezone.now()
    post(event("engine_paused", "warning", subject="e1"))
    post(event("engine_up", "info", subject="e1"))
    assert Incident.objects.get().state == IncidentState.RESOLVED
    late = epoch_ms(told - timedelta(seconds=5))
    post(event("engine_paused", "warning", subject="e1", at=late))
    assert not Incident.objects.filter(state=IncidentState.FIRING).exists()


def test_a_restart_that_nobody_asked_for_calls_and_is_over_when_it_stays_the_only_one(post: Post) -> None:
    post(event("engine_restarted", "info", subject="e1"))
    assert not Incident.objects.exists()
    post(event("engine_restarted", "warning", subject="e1"))
    assert Incident.objects.get().labels["alertname"] == "EngineRestarted"
    assert settle_incidents() == 0
    NodeEvent.objects.update(received_at=hours_ago(2))
    assert settle_incidents() == 1


def test_a_hung_engine_has_an_incident_until_it_works_again(post: Post) -> None:
    post(event("engine_hung", subject="e1", detail="engine e1 (vllm, pool short) is hung: requests running 1"))
    incident = Incident.objects.get()
    assert (incident.labels["alertname"], incident.state) == ("EngineHung", IncidentState.FIRING)
    assert incident.title == "n1: engine e1 (vllm, pool short) is hung"
    post(event("engine_up", "info", subject="e1", detail="engine e1 (vllm) works again"))
    incident.refresh_from_db()
    assert incident.state == IncidentState.RESOLVED


def test_old_events_are_forgotten_unless_their_incident_fires(post: Post, operator: Rest) -> None:
    post(event(), event("gpu_lost"), event("engine_up", "info"))
    operator.post(f"/incidents/{Incident.objects.earliest('pk').pk}/resolve")
    assert prune() == 0
    NodeEvent.objects.update(received_at=hours_ago(24 * 30 + 1))
    assert prune() == 2
    assert NodeEvent.objects.get().kind == "gpu_lost"


@pytest.mark.usefixtures("policy_on")
def test_incidents_that_ended_long_ago_are_forgotten_with_all_of_theirs(post: Post, operator: Rest) -> None:
    post(event(), event(node="n2"))
    first = Incident.objects.earliest("pk")
    operator.post(f"/incidents/{first.pk}/resolve")
    Incident.objects.filter(pk=first.pk).update(resolved_at=hours_ago(24 * 365 + 1))
    Incident.objects.filter(node="n2").update(started_at=hours_ago(24 * 400))
    assert prune() == 1
    assert [incident.node for incident in Incident.objects.all()] == ["n2"]
    assert not IncidentEntry.objects.filter(incident=first.pk).exists()
    assert NodeEvent.objects.get(node="n1").incident is None
