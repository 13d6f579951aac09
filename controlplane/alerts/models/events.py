"""What agents and gateways said happened."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.alerts.models.incidents import Alert, Incident
from controlplane.alerts.models.severity import Severity


class NodeEvent(models.Model):
    """What an agent, or a gateway, said happened. The same id of one of them is one event, however often it comes.

    Exactly one of `node` and `gateway` is there: whose event it is. A gateway's never has an incident.
    """

    node = models.CharField(max_length=63, blank=True)
    gateway = models.CharField(max_length=63, blank=True)
    event_id = models.CharField(max_length=100)
    at = models.DateTimeField()
    received_at = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=64)
    subject = models.CharField(max_length=200)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    detail = models.CharField(max_length=2000)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL, related_name="events")
    # The alert that it opened, fed or ended.
    alert = models.ForeignKey(Alert, null=True, on_delete=models.SET_NULL, related_name="events")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["node", "gateway", "event_id"], name="one_event_an_id")
        ]
