"""Looking at all pools: what waits, what is held, how long people wait, and how long an engine takes to start."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from controlplane import settings_rows as rows
from controlplane.configs.current import current
from controlplane.configs.oversubscription import SECTIONS, Capacity, capacities
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.fleet.models import Engine, Pool
from controlplane.scaling.models import PoolScale, ScaleRound
from controlplane.telemetry import query
from policy.scaling import Signals, Wanted, settled, wanted_engines

log = logging.getLogger(__name__)
_WINDOW = "1m"
_ARRIVALS = "arrivals"
# What its column holds; no pool has as many.
_WANTED_MAX = 1_000_000_000
# Of each pool. p95 over a minute: a scaler must see a jam before it is over.
QUERIES: Mapping[str, str] = {
    "queue_length": "sum by (pool) (headworks_gateway_queue_length)",
    "waiting_tokens": "sum by (pool) (headworks_gateway_queue_tokens)",
    "held_tokens": "sum by (pool) (headworks_gateway_kv_reserved_tokens)",
    "queue_seconds": "histogram_quantile(0.95, sum by (pool, le) "
    f"(rate(headworks_gateway_queue_seconds_bucket[{_WINDOW}])))",
    "ttft_seconds": "histogram_quantile(0.95, sum by (pool, le) "
    f"(rate(headworks_gateway_ttft_seconds_bucket[{_WINDOW}])))",
    "kv_use_ratio": "avg by (pool) (headworks_engine_kv_cache_usage_ratio)",
    _ARRIVALS: "sum by (pool) (rate(headworks_gateway_requests_total[5m]))",
}


def measure_if_due(now: datetime) -> bool:
    """Measure all pools where that is due; whether it was. No other worker does meanwhile."""
    give_back_connection()
    every = timedelta(seconds=rows.SCALE_INTERVAL_SECONDS.read())
    ScaleRound.objects.get_or_create(pk=1, defaults={"due_at": now})
    # A clock that was set back since must not make it blind.
    time_has_come = Q(due_at__lte=now) | Q(due_at__gt=now + 2 * every)
    if not ScaleRound.objects.filter(time_has_come, pk=1).update(due_at=now + every):
        return False
    measure(now)
    return True


def measure(now: datetime) -> None:
    """Write a row a pool. A query that fails leaves what it is about unknown."""
    answers = {name: _answer(name, now) for name in QUERIES}
    pools = list(Pool.objects.order_by("name"))
    held = capacities(current(SECTIONS))
    for pool in pools:
        _measure(pool, held.get(pool.name), {name: found.get(pool.name) for name, found in answers.items()}, now)
    PoolScale.objects.exclude(pool__in=[pool.name for pool in pools]).delete()


def _answer(name: str, now: datetime) -> dict[str, float]:
    try:
        samples = query.instant(QUERIES[name], epoch_ms(now))
    except query.QueryError as error:
        log.warning("the scale signal %s is not known: %s", name, error)
        return {}
    # A quantile over nothing is no number, nor is what overflows once it is reckoned with.
    return {each.labels.get("pool", ""): each.value for each in samples if math.isfinite(each.value * 1e6)}


def _measure(pool: Pool, capacity: Capacity | None, found: Mapping[str, float | None], now: datetime) -> None:
    engines = list(Engine.objects.select_related("node").filter(pool=pool))
    serving = [each for each in engines if not each.takes_no_work and each.state == "up"]
    known = {name: value for name, value in found.items() if name in Signals._fields}
    signals = Signals(
        engines=len(serving),
        admissible_tokens=capacity.admissible_tokens if capacity is not None else None,
        ttft_slo_seconds=pool.ttft_slo_ms / 1000 if pool.ttft_slo_ms else None,
        **known,
    )
    wanted = min(wanted_engines(signals), _WANTED_MAX)
    down_ms = 1000 * rows.SCALE_DOWN_SECONDS.read()
    with transaction.atomic():
        row = PoolScale.objects.select_for_update().filter(pool=pool.name).first() or PoolScale(pool=pool.name)
        if engines and not serving and found[_ARRIVALS] != 0:
            # What they need is not known while none serves: who takes engines away now prolongs it.
            wanted = max(wanted, row.desired or 0)
        recent, row.desired = settled([Wanted(*each) for each in row.recent], Wanted(epoch_ms(now), wanted), down_ms)
        row.recent, row.wanted, row.measured_at = [list(each) for each in recent], wanted, now
        row.signals = {**signals._asdict(), "kv_use_ratio": found["kv_use_ratio"]}
        row.cold_start_ms = max((ms for each in engines if (ms := cold_start_ms(each)) is not None), default=None)
        row.spares = sum(each.condition == "sleeping" for each in engines)
        row.save()


def cold_start_ms(engine: Engine) -> int | None:
    """How long its last start took, as its phases say; None where it has told none."""
    phases = engine.facts.get("start_phases_ms") or {}
    return sum(phases.values()) if phases else None
