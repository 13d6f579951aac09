"""Scheduled work on what writes leave behind."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from controlplane.core import idempotency
from controlplane.core.sessions import SessionStore


@shared_task  # type: ignore[untyped-decorator]
def forget_answers() -> int:
    """Forget stored answers of writes (HEADWORKS_IDEMPOTENCY_…); how many."""
    return idempotency.forget(timezone.now())


@shared_task  # type: ignore[untyped-decorator]
def forget_sessions() -> None:
    """Forget sessions that have ended, with those of log-ins that anybody may begin and nobody finishes."""
    SessionStore.clear_expired()
