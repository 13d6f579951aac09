"""Rows of the planner: what-if runs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class WhatIfState(models.TextChoices):
    """`waiting` and `running` are open; a run that has any other state keeps it."""

    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


OPEN_STATES = (WhatIfState.WAITING, WhatIfState.RUNNING)


class WhatIfRun(models.Model):
    """Engine settings that are tried in virtual time, and what came of it."""

    state = models.CharField(max_length=16, choices=WhatIfState.choices, default=WhatIfState.WAITING)
    # The pool that the ask was measured of; empty: all of it was given.
    pool = models.CharField(max_length=63, blank=True)
    owner = models.CharField(max_length=250)
    reason = models.CharField(max_length=500)
    # As in wire/what_if.py; and what the speed is found from, as in wire/calibration.py (null: the ask says it).
    ask = models.JSONField()
    calibration = models.JSONField(null=True)
    # What was taken for granted where nothing was measured, in words.
    assumed = models.JSONField(default=list)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # A worker holds it until then, and moves that on while it works; it has begun it so many times.
    held_until = models.DateTimeField(null=True)
    begun = models.PositiveSmallIntegerField(default=0)
    runs_done = models.PositiveIntegerField(default=0)
    runs = models.PositiveIntegerField(default=0)
    report = models.JSONField(null=True)
    error = models.CharField(max_length=2000, blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["state", "held_until"], name="what_if_by_state")]

    def __str__(self) -> str:
        return f"what-if {self.pk}"
