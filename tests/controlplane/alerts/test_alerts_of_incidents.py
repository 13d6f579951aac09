"""What fired before there were alerts goes on: each incident has its alert, and its receivers are told of its end."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, Incident, LastTold
from controlplane.alerts.services import alerts, incidents, notifying
from tests.controlplane.alerts.incident import receiver

fill = import_module("controlplane.alerts.migrations.0006_alerts_of_incidents").fill
LABELS = {"alertname": "GpuLost", "node": "n1", "gpu": "GPU-3"}


@pytest.mark.django_db
def test_what_fired_before_goes_on_and_ends_once() -> None:
    now, oncall = timezone.now(), receiver("oncall")
    before = Incident.objects.create(
        fingerprint=incidents.fingerprint(LABELS), source="event", severity="critical", title="lost", labels=LABELS,
        started_at=now,
    )  # fmt: skip
    Delivery.objects.create(incident=before, receiver=oncall, status="firing", created_at=now, due_at=now)
    Incident.objects.create(
        fingerprint="0" * 64, source="rule", severity="info", title="over", state="resolved", started_at=now
    )
    fill(apps, None)
    alert = Alert.objects.get()
    assert (alert.incident_id, alert.fingerprint, alert.source) == (before.pk, before.fingerprint, "event")
    assert LastTold.objects.get().alerts == [alert.pk]
    # It is looked at from now on, and what was told is not repeated for that.
    assert notifying.look_at_due(timezone.now) == 0
    with transaction.atomic():
        found = alerts.firing_with(LABELS)
        assert found is not None
        assert alerts.resolve_alert(found, timezone.now(), "over")
    assert list(Delivery.objects.order_by("number").values_list("occasion", "status")) == [
        ("first", "firing"), ("resolved", "resolved"),
    ]  # fmt: skip
