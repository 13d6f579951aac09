"""Scheduled work on breakers."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.breakers import services


@shared_task  # type: ignore[untyped-decorator]
def forget_expired_overrides() -> int:
    """Lift overrides that have expired; answers how many."""
    return services.forget_expired(timezone.now())
