"""Alerts and the incidents that they make together, from the first that fires to the last that ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.models import Alert, Incident, IncidentState
from controlplane.alerts.services import alerts, incidents
from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.alerts import NewAlert
from controlplane.alerts.tasks import prune
from controlplane.core.changes import SYSTEM, unit_of_work
from tests.controlplane.core.racing import at_once, two_writers

pytestmark = pytest.mark.django_db


def new(engine: str = "e1", severity: str = "warning", **labels: str) -> NewAlert:
    return NewAlert(
        labels={"alertname": "KvFull", "pool": "chat", "engine": engine, **labels},
        source="rule",
        severity=severity,
        title=f"KV cache of {engine} is full",
        annotations={"summary": engine},
        at=timezone.now(),
        text="0.97",
    )


def open_all(*each: NewAlert) -> list[Alert]:
    with transaction.atomic():
        return [alert for alert, _ in alerts.open_alerts(each)]


def end_all(some: Iterable[Alert], at: datetime | None = None) -> int:
    with transaction.atomic():
        return alerts.resolve_alerts([each.pk for each in some], at or timezone.now(), "over")


def route(name: str = "nodes", **fields: Any) -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        ALERT_ROUTES.create(unit, name, fields)


def kinds(incident: Incident) -> list[str]:
    return list(incident.entries.order_by("pk").values_list("kind", flat=True))


def test_alerts_of_a_rule_and_pool_are_one_incident() -> None:
    open_all(new("e1"), new("e2"), new("e3"), new("e1", pool="code"))
    chat, code = Incident.objects.order_by("pk")
    assert (chat.labels, chat.title) == (
        {"alertname": "KvFull", "pool": "chat"}, "KV cache of e1 is full and 2 more"
    )  # fmt: skip
    assert (code.labels["pool"], code.title) == ("code", "KV cache of e1 is full")
    assert kinds(chat) == ["started", "alerts"]
    open_all(new("e4"))
    chat.refresh_from_db()
    assert chat.title == "KV cache of e1 is full and 3 more"
    assert kinds(chat) == ["started", "alerts", "alerts"]


def test_an_alert_that_fires_already_is_the_same() -> None:
    first = open_all(new())[0]
    with transaction.atomic():
        assert alerts.open_alerts([new(), new("e2")])[0] == (first, False)
    assert Alert.objects.count() == 2


def test_the_same_labels_twice_at_once_are_one_alert_of_the_higher_severity() -> None:
    one, other = open_all(new(severity="warning"), new(severity="critical"))
    assert one is other
    assert Alert.objects.get().severity == "critical"
    assert Incident.objects.get().severity == "critical"


def test_the_gravest_that_fires_gives_severity_and_title() -> None:
    mild = open_all(new("e1"))
    grave = open_all(new("e2", severity="critical"))
    incident = Incident.objects.get()
    assert (incident.severity, incident.title) == ("critical", "KV cache of e2 is full and 1 more")
    assert incident.annotations == {"summary": "e2"}
    end_all(grave)
    incident.refresh_from_db()
    assert (incident.severity, incident.title, incident.state) == ("warning", "KV cache of e1 is full", "firing")
    end_all(mild)
    incident.refresh_from_db()
    assert incident.state == IncidentState.RESOLVED
    assert kinds(incident) == ["started", "alerts", "severity", "alerts_ended", "resolved"]


def test_an_incident_ends_with_its_last_alert_and_the_next_is_another() -> None:
    first, second = open_all(new("e1"), new("e2"))
    assert end_all([first]) == 1
    assert Incident.objects.get().state == IncidentState.FIRING
    end = timezone.now() + timedelta(minutes=1)
    assert end_all([second, first], end) == 1
    incident = Incident.objects.get()
    assert (incident.state, incident.resolved_at) == (IncidentState.RESOLVED, end)
    assert end_all([second]) == 0
    (again,) = open_all(new("e2"))
    assert again.incident_id != incident.pk


def test_none_ends_before_it_began() -> None:
    (alert,) = open_all(new())
    end_all([alert], alert.started_at - timedelta(hours=1))
    alert.refresh_from_db()
    assert alert.resolved_at == alert.started_at
    assert Incident.objects.get().resolved_at == alert.started_at


def test_a_route_groups_and_is_remembered_also_once_it_is_gone() -> None:
    route(matchers=['node!=""'], group_by=["node"])
    (one, other) = open_all(new("e1", node="n1"), new("e2", node="n1", pool="code"))
    assert one.incident_id == other.incident_id
    incident = Incident.objects.get()
    assert (incident.route, incident.labels, incident.node) == ("nodes", {"node": "n1"}, "n1")
    with unit_of_work(SYSTEM, "a test") as unit:
        ALERT_ROUTES.delete(unit, "nodes")
    open_all(new("e3", node="n1"))
    assert Incident.objects.count() == 2
    end_all([one, other])
    assert Incident.objects.get(route="nodes").state == IncidentState.RESOLVED


def test_an_incident_of_several_nodes_is_of_none() -> None:
    open_all(new("e1", node="n1"))
    assert Incident.objects.get().node == "n1"
    open_all(new("e2", node="n2"))
    assert Incident.objects.get().node == ""


def test_a_title_is_cut_and_keeps_how_many_there_are() -> None:
    long = NewAlert(**{**vars(new("e1")), "title": "x" * 500})
    open_all(long, new("e2"))
    title = Incident.objects.get().title
    assert len(title) == 200
    assert title.endswith("x and 1 more")


def test_many_cost_no_more_statements_than_few() -> None:
    def statements(count: int, pool: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as few:
            opened = open_all(*(new(f"e{number}", pool=pool) for number in range(count)))
            end_all(opened)
        return len(few)

    assert statements(300, "many") <= statements(3, "few") + 4


@two_writers
@pytest.mark.django_db(transaction=True)
def test_rules_that_meet_make_one_incident_and_every_alert() -> None:
    route(group_by=["pool"])

    def burst(first: int) -> None:
        open_all(*(new(f"e{number}", alertname=f"Rule{number % 3}") for number in range(first, first + 20)))

    assert at_once(*[lambda first=first: burst(first) for first in (0, 10, 20, 30)]) == [None] * 4
    assert Incident.objects.count() == 1
    assert Alert.objects.count() == 50


@two_writers
@pytest.mark.django_db(transaction=True)
def test_the_last_two_alerts_that_end_at_once_end_the_incident_once() -> None:
    one, other = open_all(new("e1"), new("e2"))
    assert at_once(lambda: end_all([one]), lambda: end_all([other])) == [None, None]
    incident = Incident.objects.get()
    assert incident.state == IncidentState.RESOLVED
    assert kinds(incident).count("resolved") == 1


def test_the_time_line_of_a_group_that_flaps_stays_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "ENTRIES_OF_ALERTS_MAX", 3)
    open_all(new("e1"))
    for _ in range(5):
        end_all(open_all(new("e2")))
    assert kinds(Incident.objects.get()) == ["started", "alerts", "alerts_ended", "alerts"]


def test_old_alerts_of_an_incident_that_goes_on_are_forgotten() -> None:
    first, second = open_all(new("e1"), new("e2"))
    end_all([second])
    long_ago = timezone.now() - timedelta(days=31)
    Alert.objects.filter(pk=second.pk).update(resolved_at=long_ago)
    assert prune() == 1
    assert Alert.objects.get() == first
    end_all([first], long_ago)
    assert prune() == 0
