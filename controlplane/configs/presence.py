"""Which targets have a stream open, at any web process: heartbeats in the database.

A process that is killed leaves its heartbeats behind; they count no longer once three are missed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from controlplane.configs.models import TargetState
from controlplane.core.models import Target, TargetKind

MISSED_HEARTBEATS = 3
_BATCH = 500


def beat(open_ids: Collection[int], now: datetime) -> None:
    """These targets have a stream here now."""
    with transaction.atomic():
        for ids in _batches(open_ids):
            TargetState.objects.bulk_create([TargetState(target_id=i) for i in ids], ignore_conflicts=True)
            TargetState.objects.filter(target_id__in=ids).update(stream_seen_at=now)
            Target.objects.filter(id__in=ids).update(last_seen_at=now)


def ended(ids: Collection[int], now: datetime) -> None:
    """The streams of these targets have ended here. One that goes on at another process says so at its next beat."""
    for batch in _batches(ids):
        TargetState.objects.filter(target_id__in=batch).update(stream_seen_at=None)
        Target.objects.filter(id__in=batch).update(last_seen_at=now)


def live_gateways(now: datetime, beat_seconds: float) -> int:
    since = now - timedelta(seconds=MISSED_HEARTBEATS * beat_seconds)
    return TargetState.objects.filter(
        target__kind=TargetKind.GATEWAY, target__revoked_at=None, stream_seen_at__gte=since
    ).count()


def _batches(ids: Collection[int]) -> list[list[int]]:
    ordered = sorted(ids)
    return [ordered[i : i + _BATCH] for i in range(0, len(ordered), _BATCH)]
