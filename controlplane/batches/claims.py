"""A worker's hold on a batch that it reads or writes, so that no two do so at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from controlplane.batches.models import Batch

# A worker that is not heard of for so long is taken for dead. Each part of the work renews the claim.
_HOLDS = timedelta(seconds=60)


class Lost(Exception):
    """Another worker has the batch by now, or it is at another stage: stop at once."""


class Claim:
    """Made by `claim`. Every write of the work goes through it, in the write's own transaction."""

    def __init__(self, batch_id: str, status: str, until: datetime) -> None:
        self._batch_id, self._status, self._until = batch_id, status, until

    def hold(self) -> None:
        """Go on. Raises Lost."""
        until = max(timezone.now() + _HOLDS, self._until + timedelta(microseconds=1))
        if not self._mine().filter(status=self._status).update(worked_until=until):
            raise Lost(self._batch_id)
        self._until = until

    def move(self, **changes: Any) -> None:
        """Bring the batch to its next stage, and let go of it. Raises Lost."""
        if not self._mine().filter(status=self._status).update(worked_until=None, said="", **changes):
            raise Lost(self._batch_id)

    def let_go(self, said: str = "") -> None:
        """The work is not done: the next sweep tries again. Nothing where another worker has the batch by now."""
        self._mine().update(worked_until=None, said=said)

    def _mine(self) -> Any:
        return Batch.objects.filter(pk=self._batch_id, worked_until=self._until)


def claim(batch: Batch, now: datetime) -> Claim | None:
    """None where another worker has it."""
    until = now + _HOLDS
    free = Batch.objects.filter(Q(worked_until=None) | Q(worked_until__lte=now), pk=batch.pk, status=batch.status)
    return Claim(batch.pk, batch.status, until) if free.update(worked_until=until) else None
