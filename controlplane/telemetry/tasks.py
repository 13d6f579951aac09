"""Scheduled work on the embedded metric store, and recording rules."""

from __future__ import annotations

import time
from threading import Lock

from celery import shared_task
from django.utils import timezone

from controlplane.telemetry import own_series
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.decisions import retention
from controlplane.telemetry.decisions.models import Decision, MinuteSketch
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.recording.loop import evaluate_due
from controlplane.telemetry.recording.writing import OWNER
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.retention import newest_ms, prune

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@shared_task  # type: ignore[untyped-decorator]
def compact_metrics() -> int:
    """Pack what is old enough, remove what is too old or too much; samples packed.

    With an external server this lets the history that was kept before grow old; where there is none it does nothing.
    """
    if not store_path().exists():
        return 0
    now_ms = int(time.time() * 1000)
    packed = pack(store_path(), now_ms - rows.METRICS_PACK_SECONDS.read() * 1000)
    prune(store_path(), _newest_ms(now_ms) - rows.METRICS_KEEP_DAYS.read() * _DAY_MS, rows.METRICS_MAX_BYTES.read())
    return packed


def _newest_ms(now_ms: int) -> int:
    """What samples' age is counted from: the newest that was pushed, so that a clock that runs ahead removes none.

    What is recorded has this clock's times. With an external server now, as nothing is pushed here any more.
    """
    pushed_ms = None if rows.REMOTE_WRITE_URL.read() else newest_ms(store_path(), besides=OWNER)
    return now_ms if pushed_ms is None else min(now_ms, pushed_ms)


@shared_task  # type: ignore[untyped-decorator]
def record_series() -> int:
    """Evaluate the recording rules whose time has come; how many. One such task a worker, as queries can be slow."""
    if not _recording.acquire(blocking=False):
        return 0
    try:
        return evaluate_due()
    finally:
        _recording.release()


_recording = Lock()


@shared_task  # type: ignore[untyped-decorator]
def record_own_series() -> int:
    """Write what the control plane knows of the fleet and of itself into the metric store; how many series."""
    return own_series.record(timezone.now())


@shared_task  # type: ignore[untyped-decorator]
def forget_decisions() -> int:
    """Remove decisions and sketches that are too old or too many, and give their space back; rows removed."""
    now_ms = int(time.time() * 1000)
    oldest_decision_ms = now_ms - rows.DECISIONS_KEEP_HOURS.read() * _HOUR_MS
    oldest_sketch_ms = now_ms - rows.SKETCHES_KEEP_DAYS.read() * _DAY_MS
    removed = retention.forget(Decision, oldest_decision_ms, rows.DECISIONS_ROWS_MAX.read())
    removed += retention.forget(MinuteSketch, oldest_sketch_ms, rows.SKETCHES_ROWS_MAX.read())
    retention.give_space_back()
    return removed
