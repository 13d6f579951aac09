"""The control plane's own disk, metric store and worker, and the tokens of metric writers, as metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from django.conf import settings
from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.telemetry import outgoing
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.models import MetricWriter, OwnSeriesTurn, RecordingRule
from controlplane.telemetry.receiver import store_path


def families(now: datetime) -> Iterator[Metric]:
    yield from _disk(Path(settings.DATA_DIR))
    yield from _kept()
    failing = gauge("recording_rules_failing", "Recording rules whose last evaluation failed.")
    failing.add_metric((), RecordingRule.objects.exclude(group=None).exclude(last_error="").count())
    worker = gauge("worker_seen_time_seconds", "Unix time at which a worker last did scheduled work.")
    if (turn := OwnSeriesTurn.objects.first()) is not None:
        worker.add_metric((), turn.taken_ms / 1000)
    writers = gauge(
        "metric_writer_token_expiry_time_seconds", "Unix time at which a metric writer's token ends.", "writer"
    )
    for name, at in MetricWriter.objects.filter(blocked=False).values_list("name", "expires_at"):
        if at is not None:
            writers.add_metric((name,), at.timestamp())
    yield from (failing, worker, writers)


def _disk(folder: Path) -> Iterator[Metric]:
    size = gauge("disk_bytes", "Size of the file system of the control plane's data directory.", "path")
    free = gauge("disk_available_bytes", "Space of that file system that the control plane may still take.", "path")
    try:
        stat = os.statvfs(folder)
    except OSError:
        return
    size.add_metric((str(folder),), stat.f_blocks * stat.f_frsize)
    free.add_metric((str(folder),), stat.f_bavail * stat.f_frsize)
    yield from (size, free)


def _kept() -> Iterator[Metric]:
    """Of the files of this machine: what is not there has no sample."""
    kept = gauge("metric_store_bytes", "Size of the file, by what it holds: samples, or bodies that wait.", "file")
    most = gauge("metric_store_limit_bytes", "The size that the file may have.", "file")
    files = (
        ("samples", store_path(), rows.METRICS_MAX_BYTES.read()),
        ("waiting", Path(settings.DATA_DIR) / outgoing.FILE_NAME, rows.METRICS_SPOOL_BYTES.read()),
    )
    for name, file, limit_bytes in files:
        try:
            kept.add_metric((name,), file.stat().st_size)
        except OSError:
            continue
        most.add_metric((name,), limit_bytes)
    yield from (kept, most)
