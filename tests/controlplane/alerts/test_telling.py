"""What a message says of an incident's rows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.alerts.models import Alert, AlertRoute, Delivery, Incident
from controlplane.alerts.receivers.message import Message
from controlplane.alerts.services import alerts
from controlplane.alerts.telling import firing_messages, message_of
from tests.controlplane.alerts.incident import opened, receiver, resolved

pytestmark = pytest.mark.django_db


@pytest.fixture
def group() -> Incident:
    """One incident of three alerts that share a node, by a route; one of them is over."""
    AlertRoute.objects.create(name="nodes", receivers=["oncall", "am"], group_by=["node"])
    receiver()
    for gpu in "123":
        opened(gpu=gpu)
    incident = Incident.objects.get()
    assert incident.alerts.count() == 3
    alerts.resolve_alert(incident.alerts.get(labels__gpu="1"), timezone.now(), "well again")
    incident.refresh_from_db()
    return incident


def message(status: str = "firing") -> Message:
    row = Delivery.objects.select_related("incident", "receiver").order_by("number")[0]
    row.incident.refresh_from_db()
    row.status = status
    return message_of(row)


def gpus(shown: Message) -> list[tuple[str, str]]:
    return [(each.labels["gpu"], each.status) for each in shown.alerts]


def test_a_group_shows_what_fires_first_and_what_its_alerts_share(group):
    shown = message()
    assert gpus(shown) == [("3", "firing"), ("2", "firing"), ("1", "resolved")]
    assert shown.group_labels == {"node": "n1"}
    assert shown.common_labels == {"alertname": "Trouble", "node": "n1", "severity": "critical"}
    assert shown.common_annotations == {"summary": "GPU 3 fell off the bus", "description": "XID 79"}
    assert (shown.route, shown.alerts_more) == ("nodes", 0)


def test_of_a_storm_so_many_are_shown_and_the_others_counted(group, monkeypatch):
    monkeypatch.setenv("HEADWORKS_MESSAGE_ALERTS_MAX", "2")
    shown = message()
    assert gpus(shown) == [("3", "firing"), ("2", "firing")]
    assert shown.alerts_more == 1
    assert shown.common_labels == {"alertname": "Trouble", "node": "n1", "severity": "critical"}


def test_of_what_is_mute_nobody_is_told(group):
    Alert.objects.filter(labels__gpu="2").update(muted_by={"silence": ["7"]})
    assert gpus(message()) == [("3", "firing"), ("1", "resolved")]


def test_a_message_that_it_fires_says_so_also_after_its_end(group):
    resolved(group)
    assert {status for _, status in gpus(message())} == {"firing"}
    over = message("resolved")
    assert {status for _, status in gpus(over)} == {"resolved"}
    assert over.ended_at is not None
    assert all(each.ended_at for each in over.alerts)


def test_an_incident_of_a_version_before_there_were_alerts_shows_itself(group):
    group.alerts.all().delete()
    (shown,) = message().alerts
    assert shown.labels == {"node": "n1", "severity": "critical"}


def test_all_messages_about_an_incident_have_one_key_and_no_other_has_it(group):
    first = message().key
    other = opened(node="n2")
    assert first == message("resolved").key
    Delivery.objects.exclude(incident=other).delete()
    assert message().key != first


def test_a_runbooks_path_becomes_an_address_where_the_control_plane_has_one(group, monkeypatch):
    Alert.objects.update(annotations={"runbook_url": "docs/runbooks/node-lost.md"})
    assert message().runbook == ""
    monkeypatch.setenv("HEADWORKS_PUBLIC_URL", "https://hw.example/")
    assert message().runbook == "https://hw.example/docs/runbooks/node-lost/"
    assert message().url == f"https://hw.example/incidents/{group.pk}"


def test_by_the_clock_a_receiver_is_told_of_what_it_was_told_of_and_that_fires(group):
    who = receiver("am", kind="alertmanager", url="", settings={"urls": ["http://am.example"]})
    told, over, untold = opened(node="n2"), opened(node="n3"), opened(node="n4")
    Delivery.objects.filter(receiver=who).update(state="delivered")
    Delivery.objects.filter(receiver=who, incident=untold).update(state="waiting")
    resolved(over)
    found = firing_messages(who)
    assert [each.group_labels for each in found] == [{"node": told.labels["node"]}]
    assert found[0].started_at - told.started_at == timedelta(0)
