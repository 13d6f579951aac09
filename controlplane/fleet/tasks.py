"""Scheduled work on acts."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.fleet.services import acts


@shared_task  # type: ignore[untyped-decorator]
def expire_acts() -> int:
    """End the acts whose end no agent has told, or will tell; answers how many."""
    return acts.expire(timezone.now())


@shared_task  # type: ignore[untyped-decorator]
def prune_acts() -> int:
    """Forget acts that ended longer ago than HEADWORKS_ACTS_KEEP_DAYS; answers how many."""
    return acts.prune(timezone.now() - timedelta(days=rows.ACTS_KEEP_DAYS.read()))
