"""What pools promise and how long their engines took to start, as metrics beside those that are measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.fleet.cold_start import cold_start
from controlplane.fleet.models import Engine, Pool


def families(now: datetime) -> Iterator[Metric]:
    yield from _pools()
    yield from _cold_starts()


def _pools() -> Iterator[Metric]:
    objective = gauge("pool_objective_ratio", "Part of the pool's requests that shall keep what it promises.", "pool")
    promise = gauge("pool_promise_seconds", "The longest time that the pool promises.", "pool", "slo")
    cap = gauge("pool_queue_cap", "How many requests may wait for the pool at each gateway.", "pool")
    ttl = gauge("pool_queue_ttl_seconds", "How long a request may wait for the pool.", "pool")
    for pool in Pool.objects.all():
        objective.add_metric((pool.name,), pool.objective_permille / 1000)
        promises = (("ttft", pool.ttft_slo_ms), ("tpot", pool.tpot_slo_ms), ("e2e", pool.e2e_slo_ms))
        for slo, most_ms in promises:
            if most_ms is not None:
                promise.add_metric((pool.name, slo), most_ms / 1000)
        cap.add_metric((pool.name,), pool.queue_cap)
        ttl.add_metric((pool.name,), pool.queue_ttl_ms / 1000)
    yield from (objective, promise, cap, ttl)


def _cold_starts() -> Iterator[Metric]:
    labels = ("engine", "node", "pool", "model", "phase")
    took = gauge(
        "cold_start_seconds", "How long a phase of the engine's last start took, of those with a budget.", *labels
    )
    budget = gauge("cold_start_budget_seconds", "How long that phase may take by the engine's model.", *labels)
    began = gauge("cold_start_time_seconds", "Unix time at which that start began, where it is known.", *labels[:-1])
    budgeted = Engine.objects.exclude(pool__model__cold_start_budget_ms={})
    for engine in budgeted.select_related("node", "pool__model"):
        model = engine.pool.model
        whose = (engine.name, engine.node.name if engine.node else "", engine.pool.name, model.name)
        phases = cold_start(engine.facts.get("start_phases_ms") or {}, model.cold_start_budget_ms)["phases"]
        for phase in phases:
            if phase["over"] is not None:
                took.add_metric((*whose, phase["phase"]), phase["took_ms"] / 1000)
                budget.add_metric((*whose, phase["phase"]), phase["budget_ms"] / 1000)
        if phases and (started_at_ms := engine.facts.get("started_at_ms")):
            began.add_metric(whose, started_at_ms / 1000)
    yield from (took, budget, began)
