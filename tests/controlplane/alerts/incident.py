"""Incidents and receivers of the tests, made by the product's own services."""

from __future__ import annotations

from typing import Any, Literal

from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Incident, Receiver
from controlplane.alerts.services import alerts, incident_acts, notifying
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.core.changes import SYSTEM, unit_of_work

URL = "https://hooks.example.com/a"


def opened(severity: str = "critical", source: Literal["event", "rule"] = "event", **labels: str) -> Incident:
    with transaction.atomic():
        alert, _ = alerts.open_alert(
            labels={"alertname": "Trouble", "node": "n1", **labels},
            source=source,
            severity=severity,
            title="GPU 3 fell off the bus",
            annotations={"description": "XID 79"},
            at=timezone.now(),
            text="XID 79",
        )
        notifying.look_now([alert.incident_id], timezone.now())
    return Incident.objects.get(pk=alert.incident_id)


def resolved(incident: Incident) -> None:
    with transaction.atomic():
        assert incident_acts.end(incident, timezone.now(), "it is over")


def receiver(name: str = "oncall", **fields: Any) -> Receiver:
    with unit_of_work(SYSTEM, "a test") as unit:
        return RECEIVERS.create(unit, name, {"url": URL, **fields})
