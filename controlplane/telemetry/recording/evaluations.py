"""Evaluations of recording rules: which group is due, and what is kept of a rule's result.

A group is claimed by moving `next_ms` on: of several workers one changes the row, so that no moment is evaluated twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import promql_parser as ast
from django.db.models import QuerySet

from controlplane.core.reported import reported_text
from controlplane.telemetry import models as rows
from controlplane.telemetry import settings_rows
from controlplane.telemetry.recording.schedule import due_ms

Labels = dict[str, str]


def claim(now_ms: int) -> tuple[list[rows.RecordingRule], int] | None:
    """Take a group that is due: its rules in order, and the moment; None: none is."""
    delay_ms = settings_rows.RECORDING_DELAY_SECONDS.read() * 1000
    late_ms = settings_rows.METRICS_LATE_SECONDS.read() * 1000
    for group in rows.RecordingGroup.objects.order_by("next_ms", "pk"):
        interval_ms = _interval_ms(group)
        at_ms = due_ms(group.next_ms, now_ms, interval_ms, delay_ms, late_ms)
        if at_ms is None:
            continue
        # None is changed where another worker was faster.
        unclaimed = rows.RecordingGroup.objects.filter(pk=group.pk, next_ms=group.next_ms)
        if unclaimed.update(next_ms=at_ms + interval_ms):
            return list(group.rules.order_by("position")), at_ms
    return None


def fail(rule: rows.RecordingRule, at: datetime, took_ms: int, error: str) -> None:
    """Keep why the rule has no result. Its series are left to end by the look-back, as with Prometheus."""
    _row(rule).update(evaluated_at=at, took_ms=took_ms, last_error=reported_text(error))


def store(rule: rows.RecordingRule, at: datetime, took_ms: int, written: Sequence[Labels]) -> None:
    """Keep which series the result had."""
    _row(rule).update(evaluated_at=at, took_ms=took_ms, last_error="", written=list(written))


def gone() -> list[rows.RecordingRule]:
    """Rules that were removed, and whose series have not been ended yet."""
    return list(rows.RecordingRule.objects.filter(group=None))


def alive(record: str) -> list[Labels]:
    """Series of this name that rules in force have written."""
    in_force = rows.RecordingRule.objects.filter(record=record).exclude(group=None)
    return [labels for rule in in_force for labels in rule.written]


def forget(rule: rows.RecordingRule) -> None:
    """Remove a rule that is gone, unless it was taken back meanwhile."""
    _row(rule).filter(group=None).delete()


def _row(rule: rows.RecordingRule) -> QuerySet[rows.RecordingRule]:
    return rows.RecordingRule.objects.filter(pk=rule.pk)


def _interval_ms(group: rows.RecordingGroup) -> int:
    if not group.interval:
        return settings_rows.RECORDING_INTERVAL_SECONDS.read() * 1000
    return round(ast.parse_duration(group.interval).total_seconds() * 1000)
