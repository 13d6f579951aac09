"""Work on events, incidents, deliveries and rules that the beat or a commit asks for."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from threading import Lock

from celery import shared_task
from celery.signals import worker_shutting_down
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.alerts.delivery_loop import DeliveryLoop
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services import alerts, events, incidents, notifying, settling, silences


@shared_task  # type: ignore[untyped-decorator]
def prune() -> int:
    """Forget old events, and incidents and silences that ended long ago; answers how many."""
    now = timezone.now()
    forgotten = events.prune(now - timedelta(days=rows.EVENTS_KEEP_DAYS.read()))
    forgotten += alerts.prune(now - timedelta(days=rows.EVENTS_KEEP_DAYS.read()))
    forgotten += silences.prune(now - timedelta(days=rows.SILENCES_KEEP_DAYS.read()))
    return forgotten + incidents.prune(now - timedelta(days=rows.INCIDENTS_KEEP_DAYS.read()))


@shared_task  # type: ignore[untyped-decorator]
def settle_incidents() -> int:
    """End incidents whose end no event told: what is reported well again, and old warnings; answers how many."""
    now = timezone.now()
    return settling.resolve_reported_well(now) + settling.resolve_quiet(now, rows.INCIDENTS_QUIET_SECONDS.read())


@shared_task  # type: ignore[untyped-decorator]
def notify() -> int:
    """Look at the incidents whose time has come, and write who is told what; how many messages."""
    return notifying.look_at_due(timezone.now)


@shared_task  # type: ignore[untyped-decorator]
def deliver() -> None:
    """Send what is due. Returns at once: the threads that send are the loop's own."""
    _delivery_loop().wake()


@shared_task  # type: ignore[untyped-decorator]
def evaluate_rules() -> int:
    """Evaluate the rules whose time has come; how many. One such task a worker: slow queries must not take it all."""
    if not _evaluating.acquire(blocking=False):
        return 0
    try:
        return evaluate_due()
    finally:
        _evaluating.release()


_evaluating = Lock()


@cache
def _delivery_loop() -> DeliveryLoop:
    loop = DeliveryLoop(rows.WEBHOOKS_AT_ONCE.read())
    # Weak, the signal's receivers would be gone with this call.
    worker_shutting_down.connect(lambda **_: loop.stop(), weak=False)
    return loop
