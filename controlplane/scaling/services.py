"""What scalers and people are told of each pool."""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane import settings_rows as rows
from controlplane.core.errors import NotFound
from controlplane.core.fields import iso
from controlplane.fleet.models import Pool
from controlplane.scaling.models import PoolScale
from policy.scaling import needs_spare
from wire.canonical import Document

# A measurement that is older by so many intervals is none any more.
STALE_INTERVALS = 4


def fresh(now: datetime) -> list[PoolScale]:
    since = now - STALE_INTERVALS * timedelta(seconds=rows.SCALE_INTERVAL_SECONDS.read())
    return list(PoolScale.objects.filter(measured_at__gt=since).order_by("pool"))


def signals(now: datetime) -> list[Document]:
    """Every pool that was measured lately."""
    ttl = dict(Pool.objects.values_list("name", "queue_ttl_ms"))
    return [_described(row, ttl[row.pool]) for row in fresh(now) if row.pool in ttl]


def signals_of(pool: str, now: datetime) -> Document:
    """Raises NotFound where there is no such pool, or it was not measured lately."""
    found = next((item for item in signals(now) if item["pool"] == pool), None)
    if found is None:
        raise NotFound(f"there is no pool {pool!r}, or no worker has measured it lately")
    return found


def _described(row: PoolScale, queue_ttl_ms: int) -> Document:
    needed = needs_spare(row.cold_start_ms, queue_ttl_ms)
    return {
        "pool": row.pool,
        "measured_at": iso(row.measured_at),
        **row.signals,
        "wanted_engines": row.wanted,
        "desired_engines": row.desired,
        "warm_spare": {
            "needed": needed,
            "have": row.spares,
            "cold_start_ms": row.cold_start_ms,
            "queue_ttl_ms": queue_ttl_ms,
        },
    }
