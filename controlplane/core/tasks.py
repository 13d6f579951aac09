"""Scheduled work on what writes leave behind."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.core import idempotency


@shared_task  # type: ignore[untyped-decorator]
def forget_answers() -> int:
    """Forget stored answers of writes (HEADWORKS_IDEMPOTENCY_…); how many."""
    return idempotency.forget(timezone.now())
