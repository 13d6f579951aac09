"""What a worker does for batches at each sweep: read new ones, give up what is late, write what has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from django.utils import timezone

from controlplane.batches import lines, reading, writing
from controlplane.batches.claims import Claim, Lost, claim
from controlplane.batches.models import OPEN, Batch, LineState, Status
from controlplane.batches.store import Store, new_id

log = logging.getLogger(__name__)


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
    if not ended:
        return False
    mine = Batch.objects.filter(pk=batch.pk, status=batch.status)
    return bool(
        mine.update(status=Status.FINALIZING, finalizing_at=now, output_file_id=new_id(), error_file_id=new_id())
    )


def _work(store: Store, batch_id: str) -> bool:
    """Read or write a batch's files, unless another worker does; whether it went on."""
    batch = Batch.objects.filter(pk=batch_id, status__in=_WORK).first()
    mine = None if batch is None else claim(batch, timezone.now())
    if batch is None or mine is None:
        return False
    try:
        return _WORK[Status(batch.status)](store, batch, mine, timezone.now())
    except Lost:
        return False
    except OSError as error:
        log.error("%s cannot go on: %s", batch_id, error)
        mine.let_go(f"the folder of batches: {error.strerror or type(error).__name__}")
        return False


_WORK: dict[Status, Callable[[Store, Batch, Claim, datetime], bool]] = {
    Status.VALIDATING: reading.read,
    Status.FINALIZING: writing.write,
}
