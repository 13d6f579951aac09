"""What stands between an alert and the people: routes, inhibitions, silences, maintenance windows.

Matchers are written as Alertmanager writes them: `severity="critical"`, `pool=~"chat.*"`; all of a list must match.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.alerts.models.incidents import Incident, IncidentState
from controlplane.alerts.models.receivers import Receiver
from controlplane.alerts.models.severity import Severity


class AlertRoute(models.Model):
    """Which receivers are told of the alerts that match, and which of these share an incident.

    Routes are tried in their order; the first that matches ends it, unless it says `goes_on`. The first that matches
    groups. An alert that no route matches goes to every receiver.
    """

    name = models.CharField(max_length=63, unique=True)
    order = models.PositiveBigIntegerField(default=100)
    matchers = models.JSONField(default=list)
    receivers = models.JSONField(default=list)
    group_by = models.JSONField(default=list)
    group_wait_ms = models.PositiveBigIntegerField(default=10_000)
    group_interval_ms = models.PositiveBigIntegerField(default=300_000)
    repeat_interval_ms = models.PositiveBigIntegerField(default=14_400_000)
    goes_on = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Inhibition(models.Model):
    """While an alert that `source_matchers` match fires, nobody is told of those that `target_matchers` match and that
    have the same values of the labels `equal`."""

    name = models.CharField(max_length=63, unique=True)
    source_matchers = models.JSONField(default=list)
    target_matchers = models.JSONField(default=list)
    equal = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    # The pack that brought it, and the hash of how it did: one that a person changed is left as it is.
    pack = models.CharField(max_length=63, blank=True)
    pack_hash = models.CharField(max_length=64, blank=True)

    def __str__(self) -> str:
        return self.name


class Silence(models.Model):
    """Nobody is told of the alerts that match, from `starts_at` until `ends_at`."""

    name = models.CharField(max_length=63, unique=True)
    matchers = models.JSONField(default=list)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    owner = models.CharField(max_length=150)
    comment = models.CharField(max_length=500)

    def __str__(self) -> str:
        return self.name


class MaintenanceWindow(models.Model):
    """A silence that comes again every week, on these days between two times of day of a time zone."""

    name = models.CharField(max_length=63, unique=True)
    matchers = models.JSONField(default=list)
    # Days as "mon" … "sun"; times as "HH:MM". One that ends before it starts goes on into the next day.
    days = models.JSONField(default=list)
    starts = models.CharField(max_length=5)
    ends = models.CharField(max_length=5)
    time_zone = models.CharField(max_length=64, default="UTC")
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class LastTold(models.Model):
    """What a receiver was last told of an incident: what keeps it from being told the same again.

    As Alertmanager's notification log. Written with the message, in one transaction.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="told")
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="+")
    status = models.CharField(max_length=16, choices=IncidentState.choices)
    # Keys of the alerts that fired, as the message had them.
    alerts = models.JSONField(default=list)
    severity = models.CharField(max_length=16, choices=Severity.choices)
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["incident", "receiver"], name="one_last_told_a_receiver")
        ]
