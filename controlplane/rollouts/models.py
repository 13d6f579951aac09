"""Rows of rollouts and of their steps. Written by `services` alone."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class Kind(models.TextChoices):
    RED_BLACK = "red_black", _("red-black")
    ROLLING_RESTART = "rolling_restart", _("rolling restart")
    TO_SPARE = "to_spare", _("to a warm spare")
    FROM_SPARE = "from_spare", _("back from a warm spare")
    VERSIONED = "versioned", _("new version")


class State(models.TextChoices):
    """`running`, `paused` and `returning` are open; a rollout that has any other state keeps it, but that one which was
    aborted or has failed can still be returned."""

    RUNNING = "running", _("running")
    PAUSED = "paused", _("paused")
    RETURNING = "returning", _("returning")
    DONE = "done", _("done")
    RETURNED = "returned", _("returned")
    ABORTED = "aborted", _("aborted")
    FAILED = "failed", _("failed")


OPEN_STATES = (State.RUNNING, State.PAUSED, State.RETURNING)


class StepState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    SKIPPED = "skipped", pgettext_lazy("step", "skipped")


class Rollout(models.Model):
    kind = models.CharField(max_length=16, choices=Kind.choices)
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING, db_index=True)
    # As it was asked for, with every default in its place.
    spec = models.JSONField()
    # What it takes of GPUs (plans.cost).
    cost = models.JSONField(default=dict)
    # The pool that it is about, and the pool of the new side where there is one.
    pool = models.CharField(max_length=63)
    new_pool = models.CharField(max_length=63, blank=True)
    # Names of the engines of each side, as they were when it began.
    engines = models.JSONField(default=list)
    new_engines = models.JSONField(default=list)
    # Route → the roles that the old pool had in it (sides.Base), and how the rollout left it last (sides.left_as).
    base = models.JSONField(default=dict)
    left = models.JSONField(default=dict)
    # Of the old pool's traffic, the part that goes to the new one.
    share_permille = models.PositiveIntegerField(default=0)
    said = models.CharField(max_length=2000, blank=True)
    owner = models.CharField(max_length=150)
    reason = models.CharField(max_length=500)
    begun_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # When a worker may look at it next; one that looks sets it ahead, so that no other does meanwhile.
    look_at = models.DateTimeField(db_index=True)
    # Grows with each write: what was decided on an older one is dropped.
    writes = models.PositiveBigIntegerField(default=0)
    # Looks in a row in which a condition had no answer.
    unanswered_looks = models.PositiveIntegerField(default=0)
    # When a look last found that the control plane hears nobody, or that nobody had looked for long.
    deaf_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["pool"],
                condition=models.Q(state__in=["running", "paused", "returning"]),
                name="one_rollout_a_pool",
            )
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk}"

    @property
    def holder(self) -> str:
        """What it writes into `Engine.held_out_by`."""
        return f"rollout {self.pk}"


class Step(models.Model):
    """One step of a rollout, in the order of `index`."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveIntegerField()
    kind = models.CharField(max_length=16)
    arguments = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=StepState.choices, default=StepState.WAITING)
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    said = models.CharField(max_length=2000, blank=True)
    # What it goes by: acts that it asked for, the change that gateways must apply, since when they do, measured values.
    evidence = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["rollout", "index"], name="one_step_an_index")]
        ordering: ClassVar = ["rollout", "index"]

    def __str__(self) -> str:
        return f"step {self.index} of rollout {self.rollout_id}"
