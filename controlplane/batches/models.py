"""Rows of batches: the files that tenants leave, the batches that read them, and each line that is to be run."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from policy.batches.lines import CUSTOM_ID_MAX_CHARACTERS

ID_CHARACTERS = 48


class Purpose(models.TextChoices):
    """What a file is for, in OpenAI's words."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


class File(models.Model):
    """A file of a tenant's. Its content lies in the store under its id."""

    id = models.CharField(max_length=ID_CHARACTERS, primary_key=True)
    tenant = models.CharField(max_length=63)
    purpose = models.CharField(max_length=16, choices=Purpose)
    filename = models.CharField(max_length=255)
    size_bytes = models.PositiveBigIntegerField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "created_at", "id"], name="file_of_tenant")]

    def __str__(self) -> str:
        return self.id


class Status(models.TextChoices):
    """OpenAI's words for how far a batch is."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


OPEN = (Status.VALIDATING, Status.IN_PROGRESS, Status.FINALIZING, Status.CANCELLING)
# Gateways may still work for one of these.
RUNNING = (Status.IN_PROGRESS, Status.CANCELLING)


class Batch(models.Model):
    """A file's lines, to be run in time. `stops_at`: when its lines are given up; earlier once it is cancelled."""

    id = models.CharField(max_length=ID_CHARACTERS, primary_key=True)
    tenant = models.CharField(max_length=63)
    endpoint = models.CharField(max_length=64)
    input_file_id = models.CharField(max_length=ID_CHARACTERS)
    completion_window = models.CharField(max_length=16)
    metadata = models.JSONField(null=True)
    # Of the files that it writes; null: as long as any.
    output_expires_seconds = models.PositiveIntegerField(null=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.VALIDATING)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    stops_at = models.DateTimeField()
    in_progress_at = models.DateTimeField(null=True)
    finalizing_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    expired_at = models.DateTimeField(null=True)
    cancelling_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    total = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    # Why the whole file was not taken: OpenAI's list of {code, message, param, line}.
    errors = models.JSONField(default=list)
    output_file_id = models.CharField(max_length=ID_CHARACTERS, blank=True)
    error_file_id = models.CharField(max_length=ID_CHARACTERS, blank=True)
    # A worker that reads or writes its files claims it until then.
    worked_until = models.DateTimeField(null=True)
    # What keeps a worker from going on, such as a full disk.
    said = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "created_at", "id"], name="batch_of_tenant"),
            models.Index(fields=["created_at", "id"], name="batch_newest"),
            models.Index(fields=["status", "stops_at"], name="batch_open"),
        ]

    def __str__(self) -> str:
        return self.id


class LineState(models.TextChoices):
    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Line(models.Model):
    """One request of a batch. `due_at`: when it may be given out, which for a leased one is the end of its lease;
    null once it has ended.
    """

    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="lines")
    # From 1, as editors count.
    number = models.PositiveIntegerField()
    custom_id = models.CharField(max_length=CUSTOM_ID_MAX_CHARACTERS, blank=True)
    model = models.CharField(max_length=200, blank=True)
    # Where it stands in the batch's file.
    offset_bytes = models.PositiveBigIntegerField(default=0)
    size_bytes = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=16, choices=LineState, default=LineState.WAITING)
    due_at = models.DateTimeField(null=True)
    # Grows with each lease, so that a gateway which lost one is known.
    lease = models.PositiveBigIntegerField(default=0)
    gateway = models.CharField(max_length=63, blank=True)
    tries = models.PositiveIntegerField(default=0)
    # Leases that ended without a word.
    lost = models.PositiveIntegerField(default=0)
    # Once it has ended: its line of the output or the error file.
    written = models.BinaryField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["batch", "number"], name="one_line_a_number")]
        indexes: ClassVar = [
            models.Index(
                fields=["batch", "due_at", "number"], name="line_due", condition=models.Q(due_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"{self.batch_id}:{self.number}"
