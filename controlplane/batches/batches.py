"""The only writer of batches as tenants and operators see them: made, listed, cancelled, forgotten."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.batches import files, lines, waking
from controlplane.batches import settings_rows as rows
from controlplane.batches.asked import Asked
from controlplane.batches.models import OPEN, RUNNING, Batch, Purpose, Status
from controlplane.batches.refusals import bad_batch, no_batch, too_many_open
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.fields import iso
from controlplane.core.scope import Tenants, within
from wire.canonical import Document

NOUN = "batch"
# As OpenAI has it: what runs has so long to end.
_CANCELLING_LASTS = timedelta(minutes=10)
# Of what the files' life is: who asks for a batch later than that finds its files gone anyway.
_KEPT_TIMES = 2
_TIMES = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip


def create(tenant: str, asked: Asked, now: datetime) -> Batch:
    """Raises Refused. A worker reads its file next."""
    window = asked.window
    with transaction.atomic():
        file = files.get(tenant, asked.input_file_id)
        if file.purpose != Purpose.BATCH:
            raise bad_batch(f"{file.pk} was written by a batch; give a file of purpose batch")
        most = rows.OPEN_MAX.read()
        if Batch.objects.filter(tenant=tenant, status__in=OPEN).count() >= most:
            raise too_many_open(most)
        expiry = asked.output_expires_after
        batch = Batch.objects.create(
            id=f"batch_{secrets.token_hex(16)}",
            tenant=tenant,
            endpoint=asked.endpoint,
            input_file_id=file.pk,
            completion_window=asked.completion_window,
            metadata=asked.metadata,
            output_expires_seconds=None if expiry is None else expiry.seconds,
            created_at=now,
            expires_at=now + window,
            stops_at=now + window,
        )
        waking.wake_on_commit()
    return batch


def get(batch_id: str, tenants: Tenants = None) -> Batch:
    batch = within(Batch.objects.filter(pk=batch_id), "tenant", tenants).first()
    if batch is None:
        raise no_batch(batch_id)
    return batch


def page(
    tenants: Tenants, *, limit: int, after: str = "", status: str = "", tenant: str = ""
) -> tuple[list[Batch], bool]:
    """Newest first, those older than `after`; and whether there are more. Raises NotFound."""
    found = within(Batch.objects.all(), "tenant", tenants)
    if status:
        found = found.filter(status=status)
    if tenant:
        found = found.filter(tenant=tenant)
    if after:
        last = get(after, tenants)
        found = found.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, pk__lt=last.pk))
    some = list(found.order_by("-created_at", "-pk")[: limit + 1])
    return some[:limit], len(some) > limit


def cancel(batch_id: str, tenants: Tenants, now: datetime) -> Batch:
    """No further line of it starts; those that run have ten minutes. Raises NotFound, Conflict where it has ended."""
    with transaction.atomic():
        batch = get(batch_id, tenants)
        if batch.status in (Status.CANCELLING, Status.CANCELLED):
            return batch
        stops_at = min(batch.stops_at, now + _CANCELLING_LASTS)
        ongoing = Batch.objects.filter(pk=batch.pk, status__in=(Status.VALIDATING, *RUNNING))
        if not ongoing.update(status=Status.CANCELLING, cancelling_at=now, stops_at=stops_at):
            raise Conflict(
                f"{batch_id} is {get(batch_id).status}; only one that has not ended can be cancelled",
                code="batch_ended",
            )
        lines.cancel_waiting(batch.pk)
        waking.wake_on_commit()
    return get(batch_id)


def cancel_by_person(unit: UnitOfWork, batch_id: str, tenants: Tenants) -> Batch:
    """The same by an operator. Raises NotFound, Conflict."""
    before = summary(get(batch_id, tenants))
    batch = cancel(batch_id, tenants, timezone.now())
    unit.record(NOUN, batch_id, before, summary(batch))
    return batch


def forget(now: datetime) -> int:
    """Batches that ended long ago; answers how many."""
    kept = timedelta(days=_KEPT_TIMES * rows.FILES_KEEP_DAYS.read())
    old = Batch.objects.filter(expires_at__lte=now - kept).exclude(status__in=OPEN)
    return int(old.delete()[1].get("batches.Batch", 0))


def openai_form(batch: Batch) -> Document:
    """OpenAI's batch object."""
    return {
        "id": batch.pk,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": _told(batch, batch.output_file_id),
        "error_file_id": _told(batch, batch.error_file_id),
        "created_at": int(batch.created_at.timestamp()),
        **{name: _unix(getattr(batch, name)) for name in _TIMES},
        "request_counts": _counts(batch),
        "metadata": batch.metadata,
    }


def summary(batch: Batch) -> Document:
    """What people see of it: no word of what its lines ask or answer."""
    return {
        "id": batch.pk,
        "tenant": batch.tenant,
        "endpoint": batch.endpoint,
        "status": batch.status,
        "completion_window": batch.completion_window,
        "request_counts": _counts(batch),
        "input_file_id": batch.input_file_id,
        "output_file_id": _told(batch, batch.output_file_id),
        "error_file_id": _told(batch, batch.error_file_id),
        "errors": batch.errors,
        "created_at": iso(batch.created_at),
        **{name: iso(getattr(batch, name)) for name in _TIMES},
        "said": batch.said or None,
    }


def _counts(batch: Batch) -> Document:
    return {"total": batch.total, "completed": batch.completed, "failed": batch.failed}


def _told(batch: Batch, file_id: str) -> str | None:
    """A file is told of once it is whole."""
    return file_id if file_id and batch.status not in OPEN else None


def _unix(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
