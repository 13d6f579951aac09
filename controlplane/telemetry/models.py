"""Rows of telemetry: what is recorded as series of its own."""

from __future__ import annotations

from django.db import models

from controlplane.telemetry.decisions.models import Decision as Decision
from controlplane.telemetry.decisions.models import MinuteSketch as MinuteSketch


class RecordingSet(models.Model):
    """Which recording rules the rows are. One row; none until a worker has taken up the built-in rules."""

    # Given by people. If not, the rows follow the built-in rules of the version that runs.
    edited = models.BooleanField(default=False)
    # Of the built-in rules that the rows were made of.
    digest = models.CharField(max_length=64, blank=True)


class RecordingGroup(models.Model):
    """Recording rules that are evaluated one after the other, at the same moments."""

    name = models.CharField(max_length=200, unique=True)
    position = models.PositiveIntegerField()
    # As it was given, a duration of PromQL; empty: HEADWORKS_RECORDING_INTERVAL_SECONDS.
    interval = models.CharField(max_length=32, blank=True)
    # The moment, as Unix time, from which on it is to be evaluated next. A worker claims it by moving it on.
    next_ms = models.BigIntegerField()


class RecordingRule(models.Model):
    """A PromQL expression whose result is kept as the series `record`. Without a group it is gone: its series end."""

    group = models.ForeignKey(RecordingGroup, null=True, on_delete=models.SET_NULL, related_name="rules")
    position = models.PositiveIntegerField()
    record = models.CharField(max_length=200)
    expr = models.TextField()
    labels = models.JSONField(default=dict)
    # The labels of each series of the last result, without its name: which of them are missing now have ended.
    written = models.JSONField(default=list)
    evaluated_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)
