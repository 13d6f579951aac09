"""Who is told, and what was sent to them."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from controlplane.alerts.models.incidents import Incident, IncidentState
from controlplane.alerts.models.severity import Severity


class ReceiverKind(models.TextChoices):
    WEBHOOK = "webhook", _("signed webhook")
    PAGERDUTY = "pagerduty", "PagerDuty"
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams"
    OPSGENIE = "opsgenie", "Opsgenie"
    EMAIL = "email", _("e-mail")
    APPRISE = "apprise", "Apprise"
    ALERTMANAGER = "alertmanager", "Alertmanager"
    HEARTBEAT = "heartbeat", _("heartbeat")


class Receiver(models.Model):
    """Where incidents are sent."""

    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=16, choices=ReceiverKind.choices, default=ReceiverKind.WEBHOOK)
    # Empty where the kind has none, or where it is a secret itself (then it is in `sealed_secret`).
    url = models.CharField(max_length=500, blank=True)
    # What the kind takes beside, such as {"to": ["oncall@example.com"]}; never a secret.
    settings = models.JSONField(default=dict)
    # Fernet token of the signing secret, routing key, API key or secret URL. Shown once, or never.
    sealed_secret = models.TextField(blank=True)
    min_severity = models.CharField(max_length=16, choices=Severity.choices, default=Severity.WARNING)
    send_resolved = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)
    # Messages a minute at most; 0: as many as there are.
    rate_limit_per_minute = models.PositiveIntegerField(default=0)
    # Its breaker: attempts that failed one after the other, and until when it is left alone.
    failures_in_a_row = models.PositiveIntegerField(default=0)
    open_until = models.DateTimeField(null=True)
    # Of a kind that is told something by the clock (heartbeat, alertmanager): when it is due next.
    heartbeat_due_at = models.DateTimeField(null=True)
    # Its rate: when a bucket of `rate_limit_per_minute` messages is full again (rate.py).
    bucket_full_at = models.DateTimeField(null=True)
    # When it last took something, and what went wrong with the last that it did not; empty: it took that.
    last_taken_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return self.name


class DeliveryState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    DELIVERED = "delivered", _("delivered")
    FAILED = "failed", _("failed")
    # Not sent: a later message about the same incident says what this one would have said.
    OVERTAKEN = "overtaken", _("overtaken")


class Occasion(models.TextChoices):
    """Why a message about an incident is sent."""

    FIRST = "first", pgettext_lazy("message", "first")
    CHANGED = "changed", pgettext_lazy("message", "changed")
    REPEAT = "repeat", pgettext_lazy("message", "repeat")
    ACKNOWLEDGED = "acknowledged", pgettext_lazy("message", "acknowledged")
    RESOLVED = "resolved", pgettext_lazy("message", "resolved")


class Delivery(models.Model):
    """One message to one receiver, written in the transaction of what it tells of (outbox).

    `id` goes with every attempt, so that a receiver knows a repeat. A worker claims it by a conditional update of
    `due_at` into the future: when that passes without an outcome, the worker died and another tries again.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="deliveries")
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="deliveries")
    # The nth message about this incident to this receiver, and why it is sent.
    number = models.PositiveIntegerField(default=1)
    occasion = models.CharField(max_length=16, choices=Occasion.choices, default=Occasion.FIRST)
    # A hash of which alerts fired when it was written: one that would say the same is not sent before its time.
    digest = models.CharField(max_length=64, blank=True)
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
            models.UniqueConstraint(fields=["incident", "receiver", "number"], name="one_delivery_a_number")
        ]


class DeliveryAttempt(models.Model):
    """One attempt at a delivery, and what the receiver answered. Written once."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="tries")
    number = models.PositiveIntegerField()
    at = models.DateTimeField()
    took_ms = models.PositiveBigIntegerField()
    # `taken`, or the name of what went wrong (delivery_plan.Reason).
    reason = models.CharField(max_length=32)
    status = models.PositiveIntegerField(null=True)
    # The beginning of what it answered, or of what went wrong here.
    text = models.CharField(max_length=1000, blank=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["delivery", "number"], name="one_row_an_attempt")]
        ordering: ClassVar = ["number"]
