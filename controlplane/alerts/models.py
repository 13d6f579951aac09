"""Rows of what went wrong and who was told: events, incidents with their time line, receivers, deliveries, rules."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Severity(models.TextChoices):
    INFO = "info", _("info")
    WARNING = "warning", _("warning")
    CRITICAL = "critical", _("critical")

    @property
    def rank(self) -> int:
        """The higher, the graver."""
        return list(Severity).index(self)


class IncidentState(models.TextChoices):
    FIRING = "firing", _("firing")
    RESOLVED = "resolved", _("resolved")


class Incident(models.Model):
    """One cause, from the first sign of it until it is gone. At most one is firing for a fingerprint."""

    # What makes two signs the same cause: a hash of `labels`.
    fingerprint = models.CharField(max_length=64, db_index=True)
    source = models.CharField(max_length=16, choices=[("event", _("event")), ("rule", _("rule"))])
    severity = models.CharField(max_length=16, choices=Severity.choices)
    title = models.CharField(max_length=200)
    # As Alertmanager has them: `alertname` and what it is about (node, gpu, engine, pool, tenant, …).
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=IncidentState.choices, default=IncidentState.FIRING)
    started_at = models.DateTimeField(db_index=True)
    resolved_at = models.DateTimeField(null=True)
    # The node that it is about, for its page; empty where there is none.
    node = models.CharField(max_length=63, blank=True, db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=Q(state="firing"), name="one_firing_incident_a_fingerprint"
            )
        ]


class IncidentEntry(models.Model):
    """One line of an incident's time line. Written once."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField()
    # started, event, severity, cordoned, not_cordoned, uncordoned, delivered, delivery_failed, resolved.
    kind = models.CharField(max_length=32)
    text = models.CharField(max_length=2000)
    # Names and numbers behind the text, such as {"revision": 12} or {"receiver": "oncall"}.
    details = models.JSONField(default=dict)

    class Meta:
        ordering: ClassVar = ["at", "pk"]


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

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["node", "gateway", "event_id"], name="one_event_an_id")
        ]


class CordonPolicy(models.Model):
    """Whether a critical hardware event cordons its node by itself. One row; off until a person turns it on."""

    enabled = models.BooleanField(default=False)
    # At most this share of the nodes, and always at least `min_nodes`, is cordoned by the policy within the window.
    max_nodes_permille = models.PositiveIntegerField(default=200)
    min_nodes = models.PositiveIntegerField(default=1)
    window_ms = models.PositiveBigIntegerField(default=300_000)


class PolicyCordon(models.Model):
    """A cordon that the policy set: what its limit counts."""

    node = models.CharField(max_length=63)
    at = models.DateTimeField(db_index=True)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="cordons")


class Receiver(models.Model):
    """Where incidents are sent: a webhook with Alertmanager's version 4 body, signed."""

    name = models.CharField(max_length=63, unique=True)
    url = models.CharField(max_length=500)
    # Fernet token of the signing secret, which is shown once.
    sealed_secret = models.TextField()
    min_severity = models.CharField(max_length=16, choices=Severity.choices, default=Severity.WARNING)
    send_resolved = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class DeliveryState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    DELIVERED = "delivered", _("delivered")
    FAILED = "failed", _("failed")


class Delivery(models.Model):
    """One message to one receiver, written in the transaction of what it tells of (outbox).

    `id` goes with every attempt, so that a receiver knows a repeat. A worker claims it by a conditional update of
    `due_at` into the future: when that passes without an outcome, the worker died and another tries again.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="deliveries")
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="deliveries")
    # Of the incident, as the message says it.
    status = models.CharField(max_length=16, choices=IncidentState.choices)
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(db_index=True)
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["incident", "receiver", "status"], name="one_delivery_a_status")
        ]


class Rule(models.Model):
    """A PromQL expression: each series of its result, once it has lasted, is an incident (as Prometheus' alerts)."""

    name = models.CharField(max_length=63, unique=True)
    expr = models.TextField()
    for_ms = models.PositiveBigIntegerField(default=0)
    keep_firing_for_ms = models.PositiveBigIntegerField(default=0)
    severity = models.CharField(max_length=16, choices=Severity.choices, default=Severity.WARNING)
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    # The loop's: when it is looked at next, and what went wrong the last time.
    due_at = models.DateTimeField(null=True)
    evaluated_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return self.name


class RuleSeries(models.Model):
    """One series of a rule's result: pending until it has lasted `for_ms`, then firing with an incident."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="series")
    fingerprint = models.CharField(max_length=64)
    labels = models.JSONField()
    # As Prometheus writes numbers: no database's float holds NaN and infinities everywhere.
    value = models.CharField(max_length=32)
    active_since = models.DateTimeField()
    # Firing, but not found any more: since when, for `keep_firing_for_ms`.
    absent_since = models.DateTimeField(null=True)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["rule", "fingerprint"], name="one_row_a_rule_series")]
