"""Work of the diagnosis that the beat asks for."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock

from celery import shared_task
from django.utils import timezone

from controlplane import settings_rows
from controlplane.diagnosis import round
from controlplane.diagnosis.services import findings

_looking = Lock()


@shared_task  # type: ignore[untyped-decorator]
def look() -> bool:
    """Hold a round, if one is due. One such task a worker: slow queries must not take it all."""
    if not _looking.acquire(blocking=False):
        return False
    try:
        return round.look()
    finally:
        _looking.release()


@shared_task  # type: ignore[untyped-decorator]
def prune() -> int:
    """Forget findings that were over long ago; answers how many."""
    return findings.prune(timezone.now() - timedelta(days=settings_rows.FINDINGS_KEEP_DAYS.read()))
