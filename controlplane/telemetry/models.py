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
    # Of that evaluation, with the writing of its result.
    took_ms = models.PositiveIntegerField(null=True)
    last_error = models.CharField(max_length=500, blank=True)


class OwnSeriesTurn(models.Model):
    """Of which moment (Unix time) the control plane's own series were last written. One row.

    A worker claims the next one by moving it on.
    """

    taken_ms = models.BigIntegerField(default=0)


class MetricWriter(models.Model):
    """A Prometheus, Alloy or vmagent that writes: `hww-` and 32 random bytes in base62, shown once, say which."""

    name = models.CharField(max_length=63, unique=True)
    # Label to value: what each of its series carries.
    matchers = models.JSONField()
    blocked = models.BooleanField(default=False)
    token_hash = models.CharField(max_length=64, unique=True)
    token_made_at = models.DateTimeField()
    # Null: never.
    expires_at = models.DateTimeField(null=True)
    # The token before, and how long it is good beside the new one.
    previous_token_hash = models.CharField(max_length=64, unique=True, null=True)
    previous_expires_at = models.DateTimeField(null=True)
    # When a body last came from it, to some seconds.
    last_pushed_at = models.DateTimeField(null=True)
    # A token that was made just now, to be shown once: no column.
    secret: str | None = None
