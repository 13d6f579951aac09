"""What pools last wanted, for scalers and people."""

from __future__ import annotations

from django.db import models


class ScaleRound(models.Model):
    """When all pools are looked at next; one row, claimed by moving it on."""

    due_at = models.DateTimeField()


class PoolScale(models.Model):
    """A pool's signals as they were last measured, and the engines that it should have by them."""

    pool = models.CharField(max_length=63, unique=True)
    measured_at = models.DateTimeField()
    # policy.scaling.Signals by name; null where something was not known.
    signals = models.JSONField()
    wanted = models.PositiveIntegerField()
    desired = models.PositiveIntegerField()
    # [Unix ms, engines] of moments that wanted more than any later one.
    recent = models.JSONField(default=list)
    # How long an engine of the pool takes to start, as those that run did; null where none told.
    cold_start_ms = models.PositiveBigIntegerField(null=True)
    spares = models.PositiveIntegerField(default=0)
