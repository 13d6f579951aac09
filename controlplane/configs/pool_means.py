"""How long requests stay in each pool's engines, and how long they are: measured each minute, and kept.

So no write has to wait for the metrics before it can be judged.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from django.utils import timezone

from controlplane.configs.models import PoolMeans
from controlplane.core.fields import epoch_ms
from controlplane.telemetry import query
from policy.promises import Means

# A mean over this time: long enough for slow requests to end within it, short enough to follow a day's load.
WINDOW = timedelta(hours=1)


def _sum(series: str) -> str:
    return f"sum by (pool) (sum_over_time({series}[{int(WINDOW.total_seconds())}s]))"


# Of what is recorded by pool (telemetry/recording/builtin.py): rates, whose sums by one another are means.
_ENGINES, _GATEWAYS = "pool:headworks_engine", "pool:headworks_gateway"
RESIDENCE_QUERY = f"{_sum(f'{_ENGINES}_e2e_seconds_sum:rate1m')} / {_sum(f'{_ENGINES}_e2e_seconds_count:rate1m')}"
CONTEXT_QUERY = (
    f"({_sum(f'{_GATEWAYS}_prompt_tokens:rate1m')} + {_sum(f'{_GATEWAYS}_generation_tokens:rate1m')}) / "
    + _sum(f'{_GATEWAYS}_requests:rate1m{{outcome="ok"}}')
)


def measure(now: datetime) -> int:
    """Ask the metrics, and keep what they say; of how many pools. Raises query.QueryError."""
    residence, context = _by_pool(RESIDENCE_QUERY, now), _by_pool(CONTEXT_QUERY, now)
    found = [
        PoolMeans(pool=pool, residence_seconds=residence.get(pool), context_tokens=context.get(pool), measured_at=now)
        for pool in sorted(residence.keys() | context.keys())
    ]
    PoolMeans.objects.bulk_create(
        found,
        update_conflicts=True,
        unique_fields=["pool"],
        update_fields=["residence_seconds", "context_tokens", "measured_at"],
    )
    PoolMeans.objects.filter(measured_at__lt=now - WINDOW).delete()
    return len(found)


def _by_pool(promql: str, now: datetime) -> dict[str, float]:
    return {
        sample.labels["pool"]: sample.value
        for sample in query.instant(promql, epoch_ms(now))
        if "pool" in sample.labels and math.isfinite(sample.value)
    }


def means_now() -> dict[str, Means]:
    """By pool; those that were measured within the last hour."""
    rows = PoolMeans.objects.filter(measured_at__gte=timezone.now() - WINDOW)
    return {pool: Means(*each) for pool, *each in rows.values_list("pool", "residence_seconds", "context_tokens")}
