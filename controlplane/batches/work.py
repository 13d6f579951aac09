"""What a worker does for batches at each sweep: read new ones, give up what is late, write what has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from controlplane.batches import lines, reading, writing
from controlplane.batches.claims import Claim, Lost, claim
from controlplane.batches.models import OPEN, Batch, LineState, Status
from controlplane.batches.store import Store, new_id

log = logging.getLogger(__name__)
_SAID_CHARACTERS = Batch._meta.get_field("said").max_length


def sweep(store: Store) -> int:
    """Bring every batch as far as it can be brought now; how many went on."""
    moved = 0
    for batch in Batch.objects.filter(status__in=OPEN).order_by("created_at", "pk"):
        now = timezone.now()
        if batch.status in (Status.IN_PROGRESS, Status.CANCELLING):
            moved += _end_lines(batch, now)
        moved += _work(store, batch.pk)
    return moved


def _end_lines(batch: Batch, now: datetime) -> bool:
    """Let a batch be written up of which no line is open any more; whether it is so."""
    if batch.status == Status.CANCELLING:
        ended = lines.give_up(batch.pk, LineState.CANCELLED, now)
    elif now >= batch.stops_at:
        ended = lines.give_up(batch.pk, LineState.EXPIRED, now)
    else:
        ended = not batch.lines.filter(due_at__isnull=False).exists()
    return ended and _finalize(batch, now)


def _finalize(batch: Batch, now: datetime) -> bool:
    """Whether it is at that stage by this call, and no line of it is open."""
    with transaction.atomic():
        mine = Batch.objects.filter(pk=batch.pk, status=batch.status)
        moved = mine.update(
            status=Status.FINALIZING, finalizing_at=now, output_file_id=new_id(), error_file_id=new_id()
        )
        # Whoever still read its file while it was cancelled may have made lines. From here on nobody does.
        if batch.lines.filter(due_at__isnull=False).exists():
            transaction.set_rollback(True)
            return False
    return bool(moved)


def _work(store: Store, batch_id: str) -> bool:
    """Read or write a batch's files, unless another worker does; whether it went on."""
    batch = Batch.objects.filter(pk=batch_id, status__in=_WORK).first()
    mine = None if batch is None else claim(batch, timezone.now())
    if batch is None or mine is None:
        return False
    try:
        _WORK[Status(batch.status)](store, batch, mine, timezone.now())
    except Lost:
        mine.let_go()
    except OSError as error:
        log.error("%s cannot go on: %s", batch_id, error)
        mine.let_go(f"files of batches: {error.strerror or type(error).__name__}"[:_SAID_CHARACTERS])
    except Exception:
        # The others shall go on.
        log.exception("%s cannot go on", batch_id)
        mine.let_go("an error of this program; a worker's log has it")
    else:
        return True
    return False


_WORK: dict[Status, Callable[[Store, Batch, Claim, datetime], None]] = {
    Status.VALIDATING: reading.read,
    Status.FINALIZING: writing.write,
}
