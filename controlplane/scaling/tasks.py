"""Measuring what pools want, when the beat asks for it."""

from __future__ import annotations

from threading import Lock

from celery import shared_task
from django.utils import timezone

from controlplane.scaling.measuring import measure_if_due

_measuring = Lock()


@shared_task  # type: ignore[untyped-decorator]
def measure() -> bool:
    """Whether it was due. One such task a worker: queries can be slow."""
    if not _measuring.acquire(blocking=False):
        return False
    try:
        return measure_if_due(timezone.now())
    finally:
        _measuring.release()
