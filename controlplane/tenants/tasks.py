"""Scheduled work on tenants."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.tenants.services import temporary_limits


@shared_task  # type: ignore[untyped-decorator]
def forget_expired_limits() -> int:
    """Remove temporary limits that have expired; answers how many."""
    return temporary_limits.forget_expired(timezone.now())
