"""Alerting rules, and the series of their results."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.alerts.models.incidents import Alert, Incident
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
    alertname = models.CharField(max_length=200, blank=True)
    # The group that it is exported in (empty: the one of those that were given none), and its place there.
    group = models.CharField(max_length=200, blank=True)
    place = models.PositiveIntegerField(default=0)
    # The pack that brought it, and the hash of how it did: a rule that a person changed is left as it is.
    pack = models.CharField(max_length=63, blank=True)
    pack_hash = models.CharField(max_length=64, blank=True)
    # The loop's: when it is looked at next, and what went wrong the last time.
    due_at = models.DateTimeField(null=True)
    evaluated_at = models.DateTimeField(null=True)
    # Of that evaluation, until its result was known.
    took_ms = models.PositiveIntegerField(null=True)
    last_error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return self.name


class PackedRule(models.Model):
    """What a pack has brought once, so that a rule that a person deleted does not come again."""

    pack = models.CharField(max_length=63)
    name = models.CharField(max_length=63)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["pack", "name"], name="one_row_a_packed_rule")]


class RuleSeries(models.Model):
    """One series of a rule's result: pending until it has lasted `for_ms`, then firing with an alert."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="series")
    fingerprint = models.CharField(max_length=64)
    labels = models.JSONField()
    # Those of the rule with the labels and the value of the last evaluation that found it.
    annotations = models.JSONField(default=dict)
    # As Prometheus writes numbers: no database's float holds NaN and infinities everywhere.
    value = models.CharField(max_length=32)
    active_since = models.DateTimeField()
    # Firing, but not found any more: since when, for `keep_firing_for_ms`.
    absent_since = models.DateTimeField(null=True)
    incident = models.ForeignKey(Incident, null=True, on_delete=models.SET_NULL)
    alert = models.ForeignKey(Alert, null=True, on_delete=models.SET_NULL)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["rule", "fingerprint"], name="one_row_a_rule_series")]
