"""Rows of what is published: fragments, revisions, and what each target runs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from controlplane.core.models import Target


class Fragment(models.Model):
    """One entry of the configuration as the last write left it, such as ("tenants", "acme").

    Written in the write's own transaction; `dirty` until a revision holds it. `content` null: removed.
    """

    section = models.CharField(max_length=32)
    key = models.CharField(max_length=200)
    content = models.JSONField(null=True)
    dirty = models.BooleanField(default=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["section", "key"], name="one_fragment_a_key")]
        indexes: ClassVar = [models.Index(fields=["id"], name="fragment_dirty", condition=models.Q(dirty=True))]

    def __str__(self) -> str:
        return f"{self.section}/{self.key}"


class Revision(models.Model):
    """One immutable state of the whole configuration: what changed, and every 50th time all of it."""

    number = models.PositiveBigIntegerField(primary_key=True)
    published_at = models.DateTimeField(db_index=True)
    # RFC 7396 patch from the revision before; and the one that takes it back.
    patch = models.JSONField()
    inverse = models.JSONField()
    whole = models.JSONField(null=True)
    hash = models.CharField(max_length=64)
    rollback_to = models.PositiveBigIntegerField(null=True)
    # What some targets get on top of it: the overlay of the stage that ran (see stages.overlay).
    stage = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"revision {self.number}"


class StageState(models.TextChoices):
    RUNNING = "running"
    PROMOTED = "promoted"
    TAKEN_BACK = "taken_back"


class Stage(models.Model):
    """A change that some targets get before all others do."""

    state = models.CharField(max_length=16, choices=StageState, default=StageState.RUNNING)
    # The unit of work that began it.
    change_id = models.UUIDField()
    owner = models.CharField(max_length=250)
    reason = models.CharField(max_length=500)
    started_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    # kind/name of each.
    targets = models.JSONField()
    # RFC 7396 patches: of the document, as people write it, and of the configuration, as it was compiled from that.
    document_patch = models.JSONField()
    patch = models.JSONField()
    # PromQL; empty: nobody watches but people.
    expression = models.TextField(blank=True)
    for_seconds = models.PositiveIntegerField(default=0)
    promotes = models.BooleanField(default=False)
    # A worker claims a look by moving this on.
    look_at = models.DateTimeField()
    healthy_since = models.DateTimeField(null=True)
    unanswered_looks = models.PositiveSmallIntegerField(default=0)
    # What the last look saw or, once it has ended, why.
    said = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["state"], condition=models.Q(state="running"), name="one_stage_at_a_time")
        ]

    def __str__(self) -> str:
        return f"stage {self.pk}"


class TargetState(models.Model):
    """What a target says it runs. `hash` is that of its slice; `error` the reasons of its last NACK."""

    target = models.OneToOneField(Target, primary_key=True, on_delete=models.CASCADE, related_name="state")
    revision = models.PositiveBigIntegerField(null=True)
    hash = models.CharField(max_length=64, blank=True)
    applied_at = models.DateTimeField(null=True)
    # When `revision` was first acknowledged.
    acked_at = models.DateTimeField(null=True)
    error_revision = models.PositiveBigIntegerField(null=True)
    # Hash of the slice that was refused: the refusal stands while the target's slice is still that one.
    error_hash = models.CharField(max_length=64, blank=True)
    error = models.JSONField(null=True)
    # When a web process last held this target's stream; null once the stream has ended.
    stream_seen_at = models.DateTimeField(null=True)
    # When it last came, or went between applying and refusing (see flapping).
    turned_at_ms = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"state of {self.target_id}"


class PoolMeans(models.Model):
    """How long a request stays in a pool's engines and how long it is, on average, as last measured (pool_means.py)."""

    pool = models.CharField(max_length=63, primary_key=True)
    residence_seconds = models.FloatField(null=True)
    context_tokens = models.FloatField(null=True)
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"means of {self.pool}"
