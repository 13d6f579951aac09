"""The pages of silences, windows, routes and inhibitions, and what people do on an incident's page."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.alerts.models import AlertRoute, Incident, Inhibition, MaintenanceWindow, Silence
from controlplane.core.fields import epoch_ms
from controlplane.core.models import User
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from tests.web.alerting import quiet
from tests.web.conftest import digest_of
from tests.web.hardware import fault, node, receiver

pytestmark = pytest.mark.django_db


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def applied(client: Client, path: str, **typed: Any) -> None:
    """Fill a form in, look at what it would do, and do it for a reason."""
    reviewed = client.post(path, {**typed, "step": "review"})
    digest = digest_of(reviewed.content.decode())
    answer = client.post(path, {**typed, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()


def moment(hours: float) -> str:
    return (timezone.now() + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M")


def test_a_silence_is_made_for_an_incident_seen_changed_and_ended(operator: Client) -> None:
    incident = fault("rack-1")
    form = page(operator, f"/silences-new/?incident={incident.pk}")
    assert "alertname=&quot;GpuXid&quot;" in form
    matchers = 'node="rack-1"\nalertname="GpuXid"'
    typed = {"matchers": matchers, "starts_at": moment(0), "comment": "a new GPU is ordered"}
    reviewed = operator.post(
        "/silences-new/", {**typed, "name": "rack-1", "ends_at": moment(4), "step": "review"}
    ).content.decode()
    assert "1 alerts that fire are matched: rack-1: XID 79 on GPU 3" in reviewed
    applied(operator, "/silences-new/", name="rack-1", ends_at=moment(4), **typed)
    listed = page(operator, "/silences/")
    assert "a new GPU is ordered" in listed
    assert "node=&quot;rack-1&quot;" in listed
    applied(operator, "/silences/rack-1/edit/", ends_at=moment(8), **typed)
    assert Silence.objects.get().ends_at > timezone.now() + timedelta(hours=7)
    applied(operator, "/silences/rack-1/expire/")
    assert Silence.objects.get().ends_at <= timezone.now()
    assert "/silences/rack-1/edit/" not in page(operator, "/silences/")


def test_what_a_service_refuses_stands_at_its_field(operator: Client) -> None:
    typed = {"name": "all", "matchers": "pool", "starts_at": moment(0), "ends_at": moment(4), "comment": "x"}
    answer = operator.post("/silences-new/", {**typed, "step": "review"})
    assert answer.status_code == 422
    assert "is no matcher" in answer.content.decode()


def test_a_window_is_made_and_deleted(operator: Client) -> None:
    typed = {"matchers": 'pool="chat"', "days": ["sat", "sun"], "starts": "22:00", "ends": "04:00", "enabled": "on"}
    applied(operator, "/maintenance-windows-new/", name="weekends", time_zone="Europe/Istanbul", **typed)
    listed = page(operator, "/maintenance-windows/")
    assert "Saturday, Sunday" in listed
    assert "22:00–04:00 Europe/Istanbul" in listed
    applied(operator, "/maintenance-windows/weekends/delete/")
    assert not MaintenanceWindow.objects.exists()


def test_a_route_is_made_tried_and_changed(admin: Client) -> None:
    receiver("oncall")
    typed = {
        "order": "10",
        "matchers": 'alertname="GpuXid"',
        "receivers": ["oncall"],
        "group_by": "node",
        "enabled": "on",
    }
    waits = {"group_wait_ms": "10s", "group_interval_ms": "5m", "repeat_interval_ms": "4h"}
    applied(admin, "/alert-routes-new/", name="hardware", **typed, **waits)
    row = AlertRoute.objects.get()
    assert (row.group_by, row.repeat_interval_ms, row.receivers) == (["node"], 14_400_000, ["oncall"])
    tried = page(admin, "/alert-routes/?labels=alertname%3DGpuXid%0Anode%3Drack-1%0Aseverity%3Dcritical&source=event")
    facts = tried[tried.index('id="tried"') :]
    assert "hardware" in facts
    assert "node=&quot;rack-1&quot;" in facts
    assert "oncall" in facts
    assert "give up to 100 of letters" in page(admin, "/alert-routes/?labels=0x%3D1&source=rule")
    applied(admin, "/alert-routes/hardware/edit/", **{**typed, "order": "20"}, **waits)
    assert AlertRoute.objects.get().order == 20
    applied(admin, "/alert-routes/hardware/delete/")
    assert not AlertRoute.objects.exists()


def test_an_inhibition_is_made_changed_and_deleted(admin: Client) -> None:
    typed = {"source_matchers": 'alertname="NodeLost"', "target_matchers": 'node!=""', "equal": "node"}
    applied(admin, "/inhibitions-new/", name="lost", enabled="on", **typed)
    assert "alertname=&quot;NodeLost&quot;" in page(admin, "/alert-routes/")
    applied(admin, "/inhibitions/lost/edit/", **typed)
    assert Inhibition.objects.get().enabled is False
    applied(admin, "/inhibitions/lost/delete/")
    assert not Inhibition.objects.exists()


def test_only_who_may_sees_what_changes_them(viewer: Client, operator: Client) -> None:
    quiet("quiet")
    for path in ("/silences/", "/maintenance-windows/", "/alert-routes/"):
        assert "/edit/" not in page(viewer, path)
    assert "/silences/quiet/edit/" in page(operator, "/silences/")
    assert "/edit/" not in page(operator, "/alert-routes/")


def test_people_say_on_its_page_what_they_do_about_an_incident(operator: Client) -> None:
    incident = fault("rack-1")
    User.objects.create(username="ada")
    path = f"/incidents/{incident.pk}"
    applied(operator, f"{path}/acknowledge/")
    applied(operator, f"{path}/assign/", assignee="ada")
    applied(operator, f"{path}/snooze/", until=moment(5))
    applied(operator, f"{path}/comment/", text="The riser card is loose.")
    incident.refresh_from_db()
    assert (incident.acknowledged_by, incident.assignee) == ("operator-person", "ada")
    assert incident.snoozed_until is not None
    shown = page(operator, f"{path}/")
    for text in (
        "operator-person: The riser card is loose.",
        "assigned to ada by operator-person: a test",
        "Snoozed until",
        "ada",
    ):
        assert text in shown
    assert f"{path}/acknowledge/" not in shown
    assert "seen by operator-person" in page(operator, "/incidents/?acknowledged=true")
    assert "No incident is like that." in page(operator, "/incidents/?acknowledged=false")


def test_incidents_are_counted_and_chosen_by_severity_and_pool(viewer: Client) -> None:
    fault("rack-1", "one")
    fault("rack-2", "other", severity="warning")
    listed = page(viewer, "/incidents/?severity=warning")
    assert "rack-2: other" in listed
    assert "rack-1: one" not in listed
    assert "No incident is like that." in page(viewer, "/incidents/?pool=chat")


def test_the_evidence_names_pools_and_charts_also_where_there_are_no_series(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"])
    incident = fault("rack-1")
    assert f'hx-get="/incidents/{incident.pk}/evidence/"' in page(viewer, f"/incidents/{incident.pk}/")
    evidence = page(viewer, f"/incidents/{incident.pk}/evidence/")
    assert '<dd><a href="/pools/chat/">chat</a></dd>' in evidence
    assert "rack-1: GPU temperature: no series in that hour" in evidence


def test_the_evidence_is_drawn_with_its_unit_and_its_time(viewer: Client, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    at_ms = epoch_ms(timezone.now())
    points = [(at_ms - number * 15_000, 64.0) for number in range(20, -1, -1)]
    store(store_path(), [named("DCGM_FI_DEV_GPU_TEMP", points, node="rack-1")], Owner("node", "rack-1"))
    incident = fault("rack-1", ago_seconds=0)
    evidence = page(viewer, f"/incidents/{incident.pk}/evidence/")
    assert "0 °C to 70.4 °C" in evidence
    begin, end = re.findall(
        r'<div class="ends quiet small"><span>(\d\d:\d\d)</span><span>(\d\d:\d\d) UTC</span>', evidence
    )[0]
    assert begin[:2] != end[:2]
    assert begin[2:] == end[2:]


def test_an_incident_has_one_part_for_a_shell_that_holds_its_evidence_too(viewer: Client) -> None:
    incident = fault("rack-1")
    whole = page(viewer, f"/incidents/{incident.pk}/")
    assert whole.count('<details class="curl"') == 1
    assert f"/api/v1/incidents/{incident.pk}/evidence" in whole
    assert '<details class="curl"' not in page(viewer, f"/incidents/{incident.pk}/evidence/")


def test_an_incident_of_many_alerts_is_shown_in_part(viewer: Client, django_assert_max_num_queries: Any) -> None:
    incident = fault("rack-1", "first")
    alert = incident.alerts.get()
    type(alert).objects.bulk_create(
        type(alert)(
            incident=incident, fingerprint=str(number), source="event", severity="warning", title=f"alert {number}",
            started_at=alert.started_at,
        )
        for number in range(5000)
    )  # fmt: skip
    with django_assert_max_num_queries(40):
        shown = page(viewer, f"/incidents/{incident.pk}/")
    assert "5,001 firing" in shown
    assert "The first 50 are shown" in shown
    assert len(shown) < 200_000
    assert Incident.objects.count() == 1
