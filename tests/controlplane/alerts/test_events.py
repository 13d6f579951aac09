"""Events as agents post them: taken once, refused by name, and what they make of incidents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.models import Incident, IncidentState, NodeEvent
from controlplane.alerts.services.events import ENTRIES_OF_EVENTS_MAX, take_events
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import NotFound
from controlplane.core.fields import EPOCH_MS_MAX, epoch_ms
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Act, Engine
from controlplane.fleet.services import NODES
from tests.controlplane.alerts.conftest import XID_79, event, target
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once, two_writers
from wire.messages import Event

Post = Callable[..., None]


def kinds(incident: Incident) -> list[str]:
    return list(incident.entries.order_by("pk").values_list("kind", flat=True))


def at(seconds_ago: float) -> int:
    return epoch_ms(timezone.now() - timedelta(seconds=seconds_ago))


def lost(seconds_ago: float = 0, **changes):
    return event("gpu_lost", detail="GPU 3 is lost: off the bus", at=at(seconds_ago), **changes)


def recovered(seconds_ago: float = 0, **changes):
    return event("gpu_recovered", "info", "GPU 3 answers again", at=at(seconds_ago), **changes)


# What is stored


def test_an_event_is_kept_and_shown(post: Post, viewer: Rest) -> None:
    sent = event()
    post(sent)
    post(event("gpu_lost", node="n2"))
    (shown,) = viewer.get("/events?node=n1").json()["items"]
    incident = Incident.objects.get(node="n1")
    assert shown.pop("received_at") >= shown["at"]
    assert shown == {**sent, "at": shown["at"], "gateway": None, "incident": incident.pk}
    assert epoch_ms(datetime.fromisoformat(shown["at"])) == sent["at"]
    assert [item["node"] for item in viewer.get("/events").json()["items"]] == ["n2", "n1"]
    page = viewer.get("/events?limit=1").json()
    assert [item["node"] for item in viewer.get(f"/events?after={page['next']}").json()["items"]] == ["n1"]


def test_an_event_counts_once_however_often_it_comes(post: Post) -> None:
    first, second = event(), event("gpu_lost")
    post(first, first)
    post(first, second)
    post(second)
    assert NodeEvent.objects.count() == 2
    assert [kinds(incident) for incident in Incident.objects.order_by("pk")] == [["started", "not_cordoned"]] * 2


def test_the_same_id_of_another_node_is_another_event(post: Post) -> None:
    post(event(id="same-id-of-both"), event(id="same-id-of-both", node="n2"))
    assert Incident.objects.count() == 2


def test_text_that_no_database_can_hold_is_made_such(post: Post) -> None:
    sent = event(id="id-with-\x00", subject="GPU\x00", detail="\x00\x1b[31m" * 300)
    post(sent)
    post(sent)
    stored = NodeEvent.objects.get()
    assert (stored.event_id, stored.subject) == ("id-with-\ufffd", "GPU\ufffd")


@pytest.mark.parametrize(("moment", "stored"), [(0, 0), (2**53 - 1, EPOCH_MS_MAX)])
def test_a_wrong_clock_is_kept_as_said_and_the_incident_has_the_time_of_arrival(
    post: Post, moment: int, stored: int
) -> None:
    before = timezone.now()
    post(event(at=moment))
    assert epoch_ms(NodeEvent.objects.get().at) == stored
    assert before <= Incident.objects.get().started_at <= timezone.now()


def test_a_spooled_event_has_the_time_at_which_it_happened(post: Post) -> None:
    sent = event(at=at(7200))
    post(sent)
    assert epoch_ms(Incident.objects.get().started_at) == sent["at"]


# What is refused


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"id": "short"}, "/1/id"),
        ({"at": -1}, "/1/at"),
        ({"kind": "Not-A-Kind"}, "/1/kind"),
        ({"severity": "fatal"}, "/1/severity"),
        ({"detail": "x" * 2001}, "/1/detail"),
        ({"more": 1}, "/1/more"),
    ],
)
def test_a_wrong_event_is_named_and_none_of_the_body_is_stored(fleet: Rest, changes: dict[str, Any], path: str) -> None:
    answer = target("node", "n1").post("/events", [event(), event(**changes)])
    assert answer.status_code == 422, answer.content
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert not NodeEvent.objects.exists()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"[", 400, "malformed"), (b"\xff\xfe", 400, "malformed"), ({}, 422, "invalid"), ([1], 422, "invalid")],
)
def test_what_is_no_list_of_events_is_refused(fleet: Rest, body: object, status: int, code: str) -> None:
    answer = target("node", "n1").post("/events", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_more_than_a_thousand_are_refused_and_a_thousand_are_taken(fleet: Rest) -> None:
    agent = target("node", "n1")
    many = [event("engine_up", "info", "up", subject=f"e{number}") for number in range(1001)]
    assert agent.post("/events", many).status_code == 422
    assert agent.post("/events", many[1:]).status_code == 200
    assert NodeEvent.objects.count() == 1000


def test_events_of_another_node_are_refused_with_all_that_came_with_them(fleet: Rest) -> None:
    answer = target("node", "n1").post("/events", [event(), event(node="n2"), event(node="nobody")])
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_node")
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/1/node", "/2/node"]
    assert not NodeEvent.objects.exists()


def reported(**changes: Any) -> dict[str, Any]:
    """A gateway's event: what one of its clients says of an answer."""
    told = event("feedback_wrong", "warning", "tenant acme, model org/m-1, answered by the exact cache", **changes)
    del told["node"]
    return told


def test_a_gateway_posts_no_events_of_nodes(fleet: Rest) -> None:
    answer = target("gateway", "n1").post("/events", [reported(), event()])
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_node")
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/1/node"]
    assert not NodeEvent.objects.exists()


def test_a_node_names_itself_in_its_events(fleet: Rest) -> None:
    answer = target("node", "n1").post("/events", [reported()])
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_node")
    assert not NodeEvent.objects.exists()


def test_an_event_of_a_gateway_is_kept_once_and_shown(fleet: Rest, viewer: Rest) -> None:
    told, gateway = reported(subject="request-7"), target("gateway", "gw-1")
    assert gateway.post("/events", [told, told]).json()["taken"] == [told["id"]] * 2
    assert gateway.post("/events", [told, reported()]).status_code == 200
    # Another gateway, or a node, cannot take the id away.
    assert target("gateway", "gw-2").post("/events", [told]).status_code == 200
    shown = viewer.get("/events?gateway=gw-1&kind=feedback_wrong").json()["items"]
    assert [item["subject"] for item in shown] == ["GPU-3", "request-7"]
    assert (shown[1]["gateway"], shown[1]["node"], shown[1]["detail"]) == ("gw-1", None, told["detail"])
    assert viewer.get("/events?node=gw-1").json()["items"] == []
    assert NodeEvent.objects.count() == 3


@pytest.mark.parametrize("kind", ["feedback_wrong", "xid", "gpu_recovered"])
def test_an_event_of_a_gateway_touches_no_incident(fleet: Rest, post: Post, kind: str) -> None:
    post(lost())
    told = {**reported(), "kind": kind, "severity": "critical"}
    assert target("gateway", "gw-1").post("/events", [told]).status_code == 200
    (incident,) = Incident.objects.all()
    assert (incident.state, incident.events.count()) == (IncidentState.FIRING, 1)


def test_people_post_no_events(admin: Rest, outsider: Rest) -> None:
    for caller in (admin, outsider):
        assert caller.post("/events", [event()]).status_code == 401


@pytest.mark.django_db
def test_events_of_a_node_that_is_not_there_are_not_taken() -> None:
    told = Event("event-00000000", 0, "xid", "GPU-3", "critical", XID_79, "nobody")
    with pytest.raises(NotFound):
        take_events("nobody", [told], timezone.now())
    assert not NodeEvent.objects.exists()


# What becomes of incidents


def test_a_fault_that_comes_again_feeds_its_incident(post: Post) -> None:
    post(event(severity="warning"))
    post(event(severity="critical"))
    incident = Incident.objects.get()
    assert (incident.severity, incident.events.count()) == ("critical", 2)
    assert kinds(incident) == ["started", "severity", "event", "not_cordoned"]
    post(event(severity="warning"))
    incident.refresh_from_db()
    assert (incident.severity, kinds(incident)[4:]) == ("critical", ["event"])


def test_a_storm_is_kept_whole_and_the_time_line_stays_readable(post: Post) -> None:
    post(*(event() for _ in range(ENTRIES_OF_EVENTS_MAX + 20)))
    incident = Incident.objects.get()
    assert incident.events.count() == ENTRIES_OF_EVENTS_MAX + 20
    assert incident.entries.count() == ENTRIES_OF_EVENTS_MAX + 2


def test_another_gpu_and_another_xid_are_incidents_of_their_own(post: Post) -> None:
    post(event(), event(subject="GPU-4"), event(detail="XID 48 (Double Bit ECC Error) on GPU 3"))
    assert Incident.objects.count() == 3


def test_recovery_ends_what_it_is_of_and_nothing_else(post: Post) -> None:
    post(lost(5), event("gpu_unresponsive"), lost(5, subject="GPU-4"), event(), lost(5, node="n2"))
    told = recovered()
    post(told)
    ended = Incident.objects.filter(state=IncidentState.RESOLVED)
    assert {incident.labels["alertname"] for incident in ended} == {"GpuLost", "GpuUnresponsive"}
    assert {(incident.node, incident.labels["gpu"]) for incident in ended} == {("n1", "GPU-3")}
    assert all(epoch_ms(incident.resolved_at) == told["at"] for incident in ended if incident.resolved_at)
    assert Incident.objects.filter(state=IncidentState.FIRING).count() == 3


def test_an_engine_that_is_up_again_ends_its_incident(post: Post) -> None:
    post(event("engine_down", detail="refused", subject="e1", at=at(5)))
    post(event("engine_up", "info", "0.32.0", subject="e2"))
    assert Incident.objects.get().state == IncidentState.FIRING
    post(event("engine_up", "info", "0.32.0", subject="e1"))
    assert Incident.objects.get().state == IncidentState.RESOLVED


def test_an_engine_that_an_act_stopped_is_down_as_it_should_be_until_it_has_run_again(post: Post) -> None:
    engine = Engine.objects.get(name="e1")
    assert engine.node is not None
    times = {"issued_at": timezone.now(), "expires_at": timezone.now(), "state_at": timezone.now()}
    stopped = Act.objects.create(act_id="a1", node=engine.node, engine=engine, action="stop", state="done", **times)
    # An agent that was started anew meanwhile knows nothing of it.
    post(event("engine_down", "critical", "refused", subject="e1"))
    assert not Incident.objects.exists()
    Act.objects.filter(pk=stopped.pk).update(state_at=timezone.now() - timedelta(minutes=1))
    post(event("engine_up", "info", "0.32.0", subject="e1", at=at(5)))
    post(event("engine_down", "critical", "refused", subject="e1"))
    assert Incident.objects.get().labels["alertname"] == "EngineDown"


def test_an_engine_that_an_act_started_after_it_was_stopped_is_missed(post: Post) -> None:
    engine = Engine.objects.get(name="e1")
    assert engine.node is not None
    times = {"issued_at": timezone.now(), "expires_at": timezone.now(), "state_at": timezone.now()}
    for number, action in enumerate(("stop", "start")):
        Act.objects.create(act_id=f"a{number}", node=engine.node, engine=engine, action=action, state="done", **times)
    post(event("engine_down", "critical", "refused", subject="e1"))
    assert Incident.objects.get().state == IncidentState.FIRING


def test_events_of_one_body_count_in_the_order_in_which_they_happened(post: Post) -> None:
    post(recovered(1), lost(2))
    incident = Incident.objects.get()
    assert (incident.state, kinds(incident)[-1]) == (IncidentState.RESOLVED, "resolved")
    assert incident.started_at < incident.resolved_at  # type: ignore[operator]


def test_a_late_recovery_does_not_end_a_newer_loss(post: Post) -> None:
    post(lost(5))
    post(recovered(10))
    assert Incident.objects.get().state == IncidentState.FIRING


def test_a_late_recovery_does_not_end_a_newer_loss_after_which_an_older_one_came(post: Post) -> None:
    post(lost(5))
    post(lost(20))
    post(recovered(10))
    assert Incident.objects.get().state == IncidentState.FIRING


def test_a_loss_opens_nothing_where_an_older_recovery_came_after_that_which_ended_it(post: Post) -> None:
    post(recovered(5))
    post(recovered(20))
    post(lost(10))
    assert not Incident.objects.exists()


def test_a_loss_that_comes_after_its_recovery_opens_nothing(post: Post) -> None:
    post(recovered(5))
    post(lost(10))
    assert not Incident.objects.exists()
    assert NodeEvent.objects.count() == 2
    post(lost(1))
    assert Incident.objects.get().state == IncidentState.FIRING


def test_a_spooled_event_from_before_the_repair_opens_nothing_anew(post: Post, fleet: Rest, operator: Rest) -> None:
    post(event(at=at(300)))
    incident = Incident.objects.get()
    assert operator.post(f"/incidents/{incident.pk}/resolve").status_code == 200
    post(event(at=at(200)))
    assert list(Incident.objects.all()) == [incident]
    assert incident.events.count() == 2
    post(event())
    assert Incident.objects.filter(state=IncidentState.FIRING).count() == 1


def test_events_that_write_no_configuration_leave_no_audit(post: Post) -> None:
    written = AuditEntry.objects.count()
    post(event(), lost(), event("gpu_error", "warning"))
    assert AuditEntry.objects.count() == written


# At once


@two_writers
@pytest.mark.django_db(transaction=True)
def test_one_body_posted_twice_at_once_counts_once() -> None:
    with unit_of_work(SYSTEM, "a node") as unit:
        NODES.create(unit, "n1", {})
    told = [Event(f"event-{number:08}", 0, "xid", "GPU-3", "critical", XID_79, "n1") for number in range(20)]

    def send() -> None:
        take_events("n1", told, timezone.now())

    assert at_once(send, send, send) == [None] * 3
    assert NodeEvent.objects.count() == 20
    assert kinds(Incident.objects.get()).count("started") == 1


@two_writers
@pytest.mark.django_db(transaction=True)
def test_two_nodes_that_fail_at_once_do_not_wait_for_each_other_forever() -> None:
    names = ("n1", "n2", "n3")
    with unit_of_work(SYSTEM, "nodes") as unit:
        for name in names:
            NODES.create(unit, name, {})

    def send(name: str) -> Callable[[], None]:
        told = [Event(f"event-{number:08}", 0, "gpu_lost", f"{number}", "critical", "x", name) for number in range(9)]
        return lambda: take_events(name, told, timezone.now())

    assert at_once(*map(send, names)) == [None] * 3
    assert Incident.objects.count() == 27


def test_utc_is_what_the_time_line_shows(post: Post, viewer: Rest) -> None:
    post(event(at=epoch_ms(datetime(2026, 1, 1, tzinfo=UTC))))
    shown = viewer.get(f"/incidents/{Incident.objects.get().pk}").json()
    assert all(entry["at"].endswith("Z") for entry in shown["entries"])
