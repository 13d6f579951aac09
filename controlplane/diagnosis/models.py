"""Rows of the diagnosis: what was looked at, what was found, what was done about it, and what may be done by itself."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class Round(models.Model):
    """One row, by which workers take turns: a round is theirs who moves `due_at` on."""

    due_at = models.DateTimeField()
    looked_at = models.DateTimeField(null=True)
    took_ms = models.PositiveIntegerField(default=0)


class DetectorState(models.Model):
    """How the last round was for one detector. `error`: why it saw nothing; empty: it saw."""

    name = models.CharField(max_length=63, unique=True)
    looked_at = models.DateTimeField()
    took_ms = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return self.name


class FindingState(models.TextChoices):
    """`pending`: found, but not yet in as many rounds as its detector wants. Nobody is shown it."""

    PENDING = "pending", _("pending")
    OPEN = "open", pgettext_lazy("finding", "found")
    CLEARED = "cleared", pgettext_lazy("finding", "over")


STANDING_STATES = (FindingState.PENDING, FindingState.OPEN)


class Finding(models.Model):
    """A bottleneck at one place, from the first round that found it to the last.

    Texts are maps of languages (see `texts`); evidence and levers are as their detector gave them last.
    """

    detector = models.CharField(max_length=63)
    subject = models.CharField(max_length=300)
    state = models.CharField(max_length=16, choices=FindingState.choices, default=FindingState.PENDING)
    since = models.DateTimeField()
    # When something of it was written last; while it stands its detector's `looked_at` says when it was seen.
    seen_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, db_index=True)
    # Rounds one after the other in which it was found and, since, missed; no more than its detector counts.
    rounds_found = models.PositiveIntegerField(default=1)
    rounds_missed = models.PositiveIntegerField(default=0)
    confidence_permille = models.PositiveIntegerField()
    summary = models.JSONField()
    evidence = models.JSONField(default=list)
    pools = models.JSONField(default=list)
    tenants = models.JSONField(default=list)
    alert = models.ForeignKey("alerts.Alert", null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["detector", "subject"],
                condition=models.Q(state__in=["pending", "open"]),
                name="one_standing_finding_a_subject",
            )
        ]

    def __str__(self) -> str:
        return f"{self.detector} at {self.subject}"


class ProposalState(models.TextChoices):
    """From `proposed` to the end of it.

    `applied`: written, but not yet run everywhere. `verifying`: it is, and the finding must clear. `offered_back`: it
    did not help, and one call takes it back. `failed`: it did not help, and nothing of it can be taken back.
    """

    PROPOSED = "proposed", _("proposed")
    APPLIED = "applied", _("applied")
    VERIFYING = "verifying", _("verifying")
    HELD = "held", pgettext_lazy("lever", "held")
    OFFERED_BACK = "offered_back", _("offered back")
    FAILED = "failed", _("failed")
    REVERTED = "reverted", _("reverted")
    SUPERSEDED = "superseded", _("superseded")
    DISMISSED = "dismissed", _("dismissed")


WATCHED_STATES = (ProposalState.APPLIED, ProposalState.VERIFYING)
LIVE_STATES = (ProposalState.PROPOSED, *WATCHED_STATES, ProposalState.OFFERED_BACK)
# What was written by it may still stand.
REVERTIBLE_STATES = (*WATCHED_STATES, ProposalState.OFFERED_BACK, ProposalState.HELD)


class Proposal(models.Model):
    """A lever of a finding, from its offer to what became of it. While it is offered it follows the finding."""

    finding = models.ForeignKey(Finding, on_delete=models.CASCADE, related_name="proposals")
    key = models.CharField(max_length=63)
    # The finding's best lever has the least.
    place = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=16, choices=ProposalState.choices, default=ProposalState.PROPOSED)
    state_at = models.DateTimeField()
    said = models.CharField(max_length=500, blank=True)
    title = models.JSONField()
    why = models.JSONField()
    advice = models.JSONField(default=dict)
    edits = models.JSONField(default=list)
    commands = models.JSONField(default=list)
    # Of one that was applied: by whom (a person, or the policy), why, as which change, what it replaced by what.
    applied_by = models.CharField(max_length=150, blank=True)
    policy = models.CharField(max_length=63, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    applied_at = models.DateTimeField(null=True)
    change_id = models.UUIDField(null=True)
    replaced = models.JSONField(default=list)
    acts = models.JSONField(default=list)
    # Since when all run it, and since when its detector has seen the place clear.
    verifying_since = models.DateTimeField(null=True)
    clear_since = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["finding", "key"],
                condition=models.Q(state__in=["proposed", "applied", "verifying", "offered_back"]),
                name="one_live_proposal_a_lever",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["state"], name="proposal_by_state")]

    def __str__(self) -> str:
        return f"{self.key} of {self.finding}"


class LeverPolicy(models.Model):
    """Lets a lever be applied by itself, within these limits."""

    name = models.CharField(max_length=63, unique=True)
    detector = models.CharField(max_length=63)
    lever = models.CharField(max_length=63)
    enabled = models.BooleanField(default=False)
    max_an_hour = models.PositiveIntegerField(default=1)
    min_confidence_permille = models.PositiveIntegerField(default=800)
    # Null: all.
    pools = models.JSONField(null=True)
    revert_if_not_held = models.BooleanField(default=True)
    stand_back_seconds = models.PositiveIntegerField(default=3600)

    def __str__(self) -> str:
        return self.name
