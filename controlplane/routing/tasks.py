"""Scheduled work on what routes lead to."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.routing import idle_versions


@shared_task  # type: ignore[untyped-decorator]
def retire_idle_versions() -> int:
    """Retire passive versions that nobody asked for within HEADWORKS_VERSION_IDLE_DAYS; answers how many."""
    return idle_versions.look(timezone.now())
