"""What went wrong, and what people did about it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.models.severity import Severity


class IncidentState(models.TextChoices):
    FIRING = "firing", _("firing")
    RESOLVED = "resolved", _("resolved")


class AlertSource(models.TextChoices):
    EVENT = "event", _("event")
    RULE = "rule", _("rule")


class Incident(models.Model):
    """One cause, from the first sign of it until it is gone: a group of alerts. At most one is firing for a
    fingerprint."""

    # What makes two alerts one group: a hash of `labels`, and of the route that groups by them.
    fingerprint = models.CharField(max_length=64, db_index=True)
    # Of its first alert.
    source = models.CharField(max_length=16, choices=AlertSource.choices)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    title = models.CharField(max_length=200)
    # Those of its alerts' labels that group them.
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=IncidentState.choices, default=IncidentState.FIRING)
    started_at = models.DateTimeField(db_index=True)
    resolved_at = models.DateTimeField(null=True)
    # The node that all of it is about, for its page; empty where there is none.
    node = models.CharField(max_length=63, blank=True, db_index=True)
    # The route that grouped it; empty: none matched.
    route = models.CharField(max_length=63, blank=True)
    # What people said of it: who has seen it, whose it is, and until when nobody is told again.
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    assignee = models.CharField(max_length=150, blank=True)
    snoozed_until = models.DateTimeField(null=True)
    # When its receivers are looked at next: a group that waits, that changed, or that is to be repeated.
    notify_at = models.DateTimeField(null=True, db_index=True)
    # When it was looked at last and somebody was told.
    told_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(state="firing"), name="one_firing_incident_a_fingerprint"
            )
        ]


class Alert(models.Model):
    """One thing that is wrong: a series of a rule's result, or what an event tells of. An incident holds those of one
    cause. At most one is firing for a fingerprint."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="alerts")
    fingerprint = models.CharField(max_length=64, db_index=True)
    source = models.CharField(max_length=16, choices=AlertSource.choices)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    title = models.CharField(max_length=200)
    # As Alertmanager has them, `alertname` among them.
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=IncidentState.choices, default=IncidentState.FIRING)
    started_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    # Why nobody is told of it just now, such as {"silence": ["7"], "inhibition": ["node-down"]}; empty: people are.
    muted_by = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(state="firing"), name="one_firing_alert_a_fingerprint"
            )
        ]


class IncidentEntry(models.Model):
    """One line of an incident's time line. Written once."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField()
    # started, event, alerts, alerts_ended, severity, muted, acknowledged, assigned, snoozed, comment, cordoned,
    # not_cordoned, uncordoned, delivered, delivery_failed, resolved.
    kind = models.CharField(max_length=32)
    text = models.CharField(max_length=2000)
    # Names and numbers behind the text, such as {"revision": 12} or {"receiver": "oncall"}.
    details = models.JSONField(default=dict)

    class Meta:
        ordering: ClassVar = ["at", "pk"]
