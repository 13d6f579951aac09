"""What the gateway measures of itself (`headworks_gateway_*`), on a registry of its own.

Labels hold configured names only: what a client sends and nobody configured is counted under `unknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.engines import EngineState
from policy.breaker import State

UNKNOWN = "unknown"
_LABELS = ("pool", "tenant", "priority_class")
_LATENCY_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_QUEUE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30)
_BREAKER_STATES: tuple[State, ...] = ("closed", "half_open", "open")


@dataclass(slots=True)
class _Series:
    """The series of one (pool, tenant, class), looked up once."""

    ttft: Histogram
    tpot: Histogram
    e2e: Histogram
    queue: Histogram
    prompt_tokens: Counter
    generation_tokens: Counter


class Metrics:
    """Counts requests. Rows that only exist at the moment of a scrape come from `MomentCollector`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"headworks_gateway_{name}", text, _LABELS, buckets=buckets, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = _LABELS) -> Counter:
            return Counter(f"headworks_gateway_{name}", text, labels, registry=self.registry)

        self._requests = counter(
            "requests_total",
            "Requests by outcome (ok, refused, failed, cancelled) and named reason.",
            (*_LABELS, "outcome", "reason"),
        )
        self._ttft = histogram("ttft_seconds", "From arrival to the first byte of a stream.", _LATENCY_SECONDS)
        self._tpot = histogram("tpot_seconds", "Time per output token of a stream.", _TOKEN_SECONDS)
        self._e2e = histogram("e2e_seconds", "From arrival to the last byte.", _LATENCY_SECONDS)
        self._queue = histogram("queue_seconds", "From arrival until it is sent to an engine.", _QUEUE_SECONDS)
        self._prompt = counter("prompt_tokens_total", "Prompt tokens that were settled.")
        self._generation = counter("generation_tokens_total", "Output tokens that were settled.")
        self._retries = counter("retries_total", "Requests sent to a second engine.", ("pool",))
        self._without_max_tokens = counter(
            "requests_without_max_tokens_total", "Requests that left their output length open.", ("pool", "tenant")
        )
        self._decisions_dropped = counter(
            "decisions_dropped_total", "Decisions that gave way to newer ones before they were sent.", ("kind",)
        )
        self._sketches_dropped = counter(
            "sketches_dropped_total", "Rows of per-minute sketches that gave way before they were sent.", ()
        )
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._request_series: dict[tuple[str, str, str, str, str], Any] = {}

    def request(self, pool: str, tenant: str, priority_class: str, outcome: str, reason: str) -> None:
        key = (pool, tenant, priority_class, outcome, reason)
        series = self._request_series.get(key)
        if series is None:
            series = self._request_series[key] = self._requests.labels(*key)
        series.inc()

    def series(self, pool: str, tenant: str, priority_class: str) -> _Series:
        key = (pool, tenant, priority_class)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(
                ttft=self._ttft.labels(*key),
                tpot=self._tpot.labels(*key),
                e2e=self._e2e.labels(*key),
                queue=self._queue.labels(*key),
                prompt_tokens=self._prompt.labels(*key),
                generation_tokens=self._generation.labels(*key),
            )
        return series

    def retry(self, pool: str) -> None:
        self._retries.labels(pool).inc()

    def left_max_tokens_open(self, pool: str, tenant: str) -> None:
        self._without_max_tokens.labels(pool, tenant).inc()

    def dropped_decision(self, kind: str) -> None:
        self._decisions_dropped.labels(kind).inc()

    def dropped_sketches(self, count: int) -> None:
        self._sketches_dropped.inc(count)

    def families(self, now: Moment) -> Iterator[Metric]:
        """All that is measured, counted and seen. It takes milliseconds: call it in a thread."""
        return chain(self.registry.collect(), MomentCollector(now).collect())

    async def page(self, now: Moment) -> bytes:
        """The text page. It is written in a thread: thousands of series take longer than a stream may wait."""
        return await asyncio.to_thread(lambda: generate_latest(self.registry) + generate_latest(MomentCollector(now)))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a scrape sees."""

    revision: int
    connected: bool
    draining: bool
    in_flight: int
    persist_errors: int
    engines: list[tuple[str, EngineState, State]]


class MomentCollector(Collector):
    """Yields gauges from what was seen at the moment of the scrape, so that nothing is kept twice."""

    def __init__(self, now: Moment) -> None:
        self._now = now

    def collect(self) -> Iterable[Metric]:
        now = self._now
        plain = (
            ("config_revision", "The configuration revision that requests are served by.", now.revision),
            ("config_connected", "1 while the configuration stream is open.", now.connected),
            ("draining", "1 once no new work is taken.", now.draining),
            ("requests_in_flight", "Requests that are being served.", now.in_flight),
        )
        for name, text, value in plain:
            yield GaugeMetricFamily(f"headworks_gateway_{name}", text, value=float(value))
        yield CounterMetricFamily(
            "headworks_gateway_config_persist_errors", "Revisions that could not be kept on disk.", now.persist_errors
        )
        labels = ["pool", "engine"]
        reserved = GaugeMetricFamily(
            "headworks_gateway_kv_reserved_tokens", "KV cache tokens that running requests may need.", labels=labels
        )
        running = GaugeMetricFamily("headworks_gateway_engine_requests", "Requests at the engine.", labels=labels)
        breaker = GaugeMetricFamily(
            "headworks_gateway_breaker_state",
            "1 for the state that holds, overrides included.",
            labels=[*labels, "state"],
        )
        for pool, engine, state in now.engines:
            reserved.add_metric([pool, engine.name], engine.reserved_tokens)
            running.add_metric([pool, engine.name], engine.in_flight)
            for possible in _BREAKER_STATES:
                breaker.add_metric([pool, engine.name, possible], float(possible == state))
        yield from (reserved, running, breaker)
