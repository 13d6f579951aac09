"""Scheduled work on revisions, and on what capacity is judged by."""

from __future__ import annotations

import logging

from celery import shared_task
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.configs import history, pool_means, stage_watch
from controlplane.telemetry import query

log = logging.getLogger(__name__)


@shared_task  # type: ignore[untyped-decorator]
def prune_revisions() -> int:
    """Forget revisions beyond HEADWORKS_REVISIONS_KEEP that are older than HEADWORKS_REVISIONS_KEEP_DAYS."""
    return history.prune(timezone.now(), keep=rows.REVISIONS_KEEP.read(), keep_days=rows.REVISIONS_KEEP_DAYS.read())


@shared_task  # type: ignore[untyped-decorator]
def measure_pools() -> int:
    """Ask how long requests are and stay in each pool's engines; of how many it is known."""
    try:
        return pool_means.measure(timezone.now())
    except query.QueryError as error:
        # What was measured before holds for an hour; after that it is unknown.
        log.warning("how long requests are and stay in pools could not be asked: %s", error)
        return 0


@shared_task  # type: ignore[untyped-decorator]
def watch_stage() -> bool:
    """Look at the staged change, if that is due; whether it was."""
    return stage_watch.look(timezone.now())
