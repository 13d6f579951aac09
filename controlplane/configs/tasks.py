"""Scheduled work on revisions."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.configs import history


@shared_task  # type: ignore[untyped-decorator]
def prune_revisions() -> int:
    """Forget revisions beyond HEADWORKS_REVISIONS_KEEP that are older than HEADWORKS_REVISIONS_KEEP_DAYS."""
    return history.prune(timezone.now(), keep=rows.REVISIONS_KEEP.read(), keep_days=rows.REVISIONS_KEEP_DAYS.read())
