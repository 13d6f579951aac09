"""Alerting rules, and the series of their results."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.alerts.models.incidents import Incident
from controlplane.alerts.models.severity import Severity


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
    # The label of its alerts; empty: its name. Several rules may share one, as in Prometheus.
    alertname = models.CharField(max_length=63, blank=True)
    # The group that it is exported in, and its place there.
    group = models.CharField(max_length=63, blank=True)
    place = models.PositiveIntegerField(default=0)
    # The pack that brought it, and the hash of how it did: a rule that a person changed is left as it is.
    pack = models.CharField(max_length=63, blank=True)
    pack_hash = models.CharField(max_length=64, blank=True)
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
