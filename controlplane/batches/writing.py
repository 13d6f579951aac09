"""The files that a batch leaves: what was answered, and what was not. Written anew where a worker died over them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import Count

from controlplane.batches import files, written
from controlplane.batches.claims import Claim
from controlplane.batches.models import Batch, File, Line, LineState, Purpose, Status
from controlplane.batches.store import Store

_ROWS_AT_ONCE = 200
_GIVEN_UP = {
    LineState.EXPIRED: ("batch_expired", "the completion window ended before the line could be run"),
    LineState.CANCELLED: ("batch_cancelled", "the batch was cancelled before the line could be run"),
}
_NOT_DONE = (LineState.FAILED, LineState.EXPIRED, LineState.CANCELLED)


def write(store: Store, batch: Batch, claim: Claim, now: datetime) -> None:
    """Write both files, then tell of them in one step. Raises OSError, Lost."""
    counts = dict(Line.objects.filter(batch=batch).values_list("state").annotate(Count("pk")))
    done = counts.get(LineState.DONE, 0)
    failed = sum(counts.get(state, 0) for state in _NOT_DONE)
    made = [
        (file_id, name, store.put(file_id, _texts(batch, claim, states)))
        for file_id, name, states, count in (
            (batch.output_file_id, "output", (LineState.DONE,), done),
            (batch.error_file_id, "error", _NOT_DONE, failed),
        )
        if count
    ]
    status = _end_of(batch, counts)
    with transaction.atomic():
        told = {file_id for file_id, _, _ in made}
        claim.move(
            status=status,
            total=done + failed,
            completed=done,
            failed=failed,
            output_file_id=batch.output_file_id if batch.output_file_id in told else "",
            error_file_id=batch.error_file_id if batch.error_file_id in told else "",
            **{f"{status}_at": now},
        )
        for file_id, name, size in made:
            _tell_of(batch, file_id, name, size, now)
        Line.objects.filter(batch=batch).delete()


def _end_of(batch: Batch, counts: dict[str, int]) -> Status:
    if batch.cancelling_at is not None:
        return Status.CANCELLED
    return Status.EXPIRED if counts.get(LineState.EXPIRED) else Status.COMPLETED


def _tell_of(batch: Batch, file_id: str, name: str, size_bytes: int, now: datetime) -> None:
    File.objects.create(
        id=file_id,
        tenant=batch.tenant,
        purpose=Purpose.BATCH_OUTPUT,
        filename=f"{batch.pk}_{name}.jsonl",
        size_bytes=size_bytes,
        created_at=now,
        expires_at=files.expires_at(now, batch.output_expires_seconds),
    )


def _texts(batch: Batch, claim: Claim, states: tuple[LineState, ...]) -> Iterator[bytes]:
    """The lines in the order of the batch's file."""
    after = 0
    while True:
        some = list(
            Line.objects.filter(batch=batch, state__in=states, number__gt=after).order_by("number")[:_ROWS_AT_ONCE]
        )
        if not some:
            return
        claim.hold()
        yield from map(_text, some)
        after = some[-1].number


def _text(line: Line) -> bytes:
    if line.written is not None:
        return bytes(line.written)
    return written.unanswered(line.batch_id, line.number, line.custom_id, *_GIVEN_UP[LineState(line.state)])
