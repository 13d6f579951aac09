"""What pools want, as metrics: for the HPA by a Prometheus adapter, for KEDA's Prometheus scaler, for rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.fleet.models import Pool
from controlplane.scaling.services import fresh
from policy.scaling import needs_spare

_OF_SIGNALS = {
    "queue_length": ("scale_queue_length", "Requests that wait for a place in the pool."),
    "waiting_tokens": ("scale_waiting_tokens", "Prompt and expected output tokens of the requests that wait."),
    "queue_seconds": ("scale_queue_p95_seconds", "How long requests waited for a place, p95 of a minute."),
    "ttft_seconds": ("scale_ttft_p95_seconds", "Time to first token, p95 of a minute."),
    "kv_use_ratio": ("scale_kv_use_ratio", "KV cache in use, mean of the pool's engines."),
}


def families(now: datetime) -> Iterator[Metric]:
    measured = fresh(now)
    for name, (metric, text) in _OF_SIGNALS.items():
        family = gauge(metric, text, "pool")
        for row in measured:
            if row.signals.get(name) is not None:
                family.add_metric((row.pool,), row.signals[name])
        yield family
    wanted = gauge("scale_engines_wanted", "Engines that the pool needs at this moment.", "pool")
    desired = gauge("scale_engines_desired", "Engines that the pool should have: up at once, down slowly.", "pool")
    lacking = gauge(
        "scale_spare_lacking", "1 where an engine starts too slowly for who waits, and none is spare.", "pool"
    )
    ttl = dict(Pool.objects.values_list("name", "queue_ttl_ms"))
    for row in measured:
        wanted.add_metric((row.pool,), row.wanted)
        desired.add_metric((row.pool,), row.desired)
        lacks = needs_spare(row.cold_start_ms, ttl.get(row.pool, 0)) and not row.spares
        lacking.add_metric((row.pool,), float(lacks))
    yield from (wanted, desired, lacking)
