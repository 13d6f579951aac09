"""Scheduled work on the embedded metric store."""

from __future__ import annotations

import time

from celery import shared_task

from controlplane import settings_rows as rows
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.retention import prune

_DAY_MS = 86_400_000


@shared_task  # type: ignore[untyped-decorator]
def compact_metrics() -> int:
    """Pack what is old enough, remove what is too old or too much; samples packed.

    With an external server this lets the history that was kept before grow old; where there is none it does nothing.
    """
    if not store_path().exists():
        return 0
    now_ms = int(time.time() * 1000)
    packed = pack(store_path(), now_ms - rows.METRICS_PACK_SECONDS.read() * 1000)
    prune(store_path(), now_ms - rows.METRICS_KEEP_DAYS.read() * _DAY_MS, rows.METRICS_MAX_BYTES.read())
    return packed
