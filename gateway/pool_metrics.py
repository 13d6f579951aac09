"""How the pools stand, as series of the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.pools import PoolMoment
from policy.breaker import State


def pool_families(pools: Iterable[PoolMoment]) -> Iterator[Metric]:
    """A pool whose concurrency nothing bounds has no sample of a limit."""

    def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"headworks_gateway_{name}", text, labels=["pool", *labels])

    length = gauge("queue_length", "Requests that wait for a place in the pool.")
    tokens = gauge("queue_tokens", "Prompt and expected output tokens of the requests that wait.")
    requests = gauge("pool_requests", "Requests of this gateway at the pool's engines.")
    limit = gauge("concurrency_limit", "How many requests of this gateway may be at the pool's engines at once.")
    breaker = gauge("pool_breaker_state", "1 for the state of the pool's own breaker, overrides included.", "state")
    forced = gauge("pool_breaker_forced", "1 while an override holds the pool's breaker open or closed.")
    for pool in pools:
        length.add_metric([pool.name], pool.queue_length)
        tokens.add_metric([pool.name], pool.queue_tokens)
        requests.add_metric([pool.name], pool.in_flight)
        if pool.limit is not None:
            limit.add_metric([pool.name], pool.limit)
        forced.add_metric([pool.name], float(pool.forced))
        for possible in get_args(State):
            breaker.add_metric([pool.name, possible], float(possible == pool.state))
    yield from (length, tokens, requests, limit, breaker, forced)
