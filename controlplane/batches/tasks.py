"""Scheduled work on batches and their files."""

from __future__ import annotations

from threading import Lock

from celery import shared_task
from django.utils import timezone

from controlplane.batches import batches, files
from controlplane.batches.store import store
from controlplane.batches.work import sweep

_working = Lock()


@shared_task  # type: ignore[untyped-decorator]
def work() -> int:
    """Bring batches on; how many went on. One such task a worker: a long file must not take all its threads."""
    if not _working.acquire(blocking=False):
        return 0
    try:
        return sweep(store())
    finally:
        _working.release()


@shared_task  # type: ignore[untyped-decorator]
def prune_batches() -> int:
    """Forget files that have expired and batches that ended long ago; answers how many."""
    now = timezone.now()
    return files.prune(store(), now) + batches.forget(now)
