"""What the gateway measures of itself (`headworks_gateway_*`), on registries of its own.

Labels hold configured names only: what a client sends and nobody configured is counted under `unknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.batches.metrics import RoomMoment, line_families
from gateway.caches.counting import CacheCounters
from gateway.engine_watch import LookRow
from gateway.families import Families, Family
from gateway.look_metrics import look_families
from gateway.own_process import ProcessMoment, own_process, process_families
from gateway.pattern_metrics import BusiestSession, PatternMetrics, session_families
from gateway.pool_metrics import pool_families
from gateway.pools import EngineState, PoolMoment
from gateway.quota.metrics import LedgerMoment, ledger_families
from gateway.size_metrics import SizeMetrics
from policy.breaker import State

UNKNOWN = "unknown"
_LABELS = ("pool", "tenant", "priority_class")
_BY_TENANT = ("pool", "tenant")
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
        self.families = Families()

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Family[Histogram]:
            return self.families.histogram(name, text, _LABELS, buckets)

        def counter(name: str, text: str, labels: tuple[str, ...] = _LABELS) -> Family[Counter]:
            return self.families.counter(name, text, labels)

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
        self._retries = counter(
            "retries_total", "Requests that an engine of the pool failed, sent to a second one.", ("pool",)
        )
        self._unseen_schemas = counter(
            "unseen_schemas_total",
            "Schemas that an engine of the pool had to compile, as far as this gateway has seen.",
            ("pool", "tenant"),
        )
        self._constrained = counter(
            "constrained_requests_total",
            "Requests of engines whose answer had to obey a schema or grammar.",
            _BY_TENANT,
        )
        self._warmed_schemas = counter(
            "warmed_schemas_total", "Schemas that an engine was asked for after it had started.", ("pool",)
        )
        self._measured = counter(
            "prompts_measured_total",
            "Prompts by what their length was taken from: template, tokenizer, engine or estimate.",
            ("model", "source"),
        )
        self._without_max_tokens = counter(
            "requests_without_max_tokens_total", "Requests that left their output length open.", _BY_TENANT
        )
        self._slo = counter(
            "slo_requests_total",
            "Requests of engines by whether all that was promised was met; those met are goodput.",
            (*_LABELS, "outcome"),
        )
        self._promises = counter(
            "slo_promises_total",
            "Requests of engines by each time that was promised them, and whether it was kept.",
            ("pool", "slo", "outcome"),
        )
        self._cancelled = counter(
            "cancelled_tokens_total", "Output tokens of requests whose client left before the end.", _BY_TENANT
        )
        self._after_cancel = counter(
            "tokens_after_cancel_total", "Output tokens that had come when their client was gone.", _BY_TENANT
        )
        self._streams_cut = counter(
            "streams_cut_total",
            "Answers that had begun and broke off, by why.",
            ("pool", "engine", "reason"),
        )
        self._body_read = counter("body_read_seconds_total", "Time that clients took to send bodies.", _BY_TENANT)
        self._body_write = counter("body_write_seconds_total", "Time that clients took to take answers.", _BY_TENANT)
        self._decisions_dropped = counter(
            "decisions_dropped_total", "Decisions that gave way to newer ones before they were sent.", ("kind",)
        )
        self._sketches_dropped = self.families.total(
            "sketches_dropped_total", "Rows of per-minute sketches that gave way before they were sent."
        )
        self.patterns = PatternMetrics(self.families)
        self.sizes = SizeMetrics(self.families)
        self.caches = CacheCounters(self.families)
        self._series: dict[tuple[str, str, str], _Series] = {}

    def request(self, pool: str, tenant: str, priority_class: str, outcome: str, reason: str) -> None:
        self._requests.labels(pool, tenant, priority_class, outcome, reason).inc()

    def series(self, pool: str, tenant: str, priority_class: str) -> _Series:
        """What counts a request that an engine was asked for: all of it is about to change."""
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
        for family in (self._ttft, self._tpot, self._e2e, self._queue, self._prompt, self._generation):
            family.touch(key)
        return series

    def retry(self, pool: str) -> None:
        self._retries.labels(pool).inc()

    def constrained(self, pool: str, tenant: str) -> None:
        self._constrained.labels(pool, tenant).inc()

    def unseen_schema(self, pool: str, tenant: str) -> None:
        self._unseen_schemas.labels(pool, tenant).inc()

    def warmed_schema(self, pool: str) -> None:
        self._warmed_schemas.labels(pool).inc()

    def measured(self, model: str, source: str) -> None:
        self._measured.labels(model, source).inc()

    def left_max_tokens_open(self, pool: str, tenant: str) -> None:
        self._without_max_tokens.labels(pool, tenant).inc()

    def judged(self, pool: str, tenant: str, priority_class: str, met: bool) -> None:
        self._slo.labels(pool, tenant, priority_class, "met" if met else "missed").inc()

    def promise(self, pool: str, slo: str, met: bool) -> None:
        self._promises.labels(pool, slo, "met" if met else "missed").inc()

    def cancelled(self, pool: str, tenant: str, output_tokens: int, after_cancel_tokens: int) -> None:
        self._cancelled.labels(pool, tenant).inc(output_tokens)
        self._after_cancel.labels(pool, tenant).inc(after_cancel_tokens)

    def stream_cut(self, pool: str, engine: str, reason: str) -> None:
        self._streams_cut.labels(pool, engine, reason).inc()

    def body_seconds(self, pool: str, tenant: str, read_seconds: float, write_seconds: float) -> None:
        self._body_read.labels(pool, tenant).inc(read_seconds)
        self._body_write.labels(pool, tenant).inc(write_seconds)

    def dropped_decision(self, kind: str) -> None:
        self._decisions_dropped.labels(kind).inc()

    def dropped_sketches(self, count: int) -> None:
        self._sketches_dropped.inc(count)

    def few(self, now: Moment) -> Iterator[Metric]:
        """What is seen now, and what is counted without labels."""
        return chain(self.families.others.collect(), MomentCollector(now).collect())

    async def page(self, now: Moment) -> bytes:
        """The text page. It is written in a thread: thousands of series take longer than a stream may wait."""
        registry = self.families.registry
        return await asyncio.to_thread(lambda: generate_latest(registry) + generate_latest(MomentCollector(now)))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a scrape sees."""

    revision: int
    connected: bool
    draining: bool
    in_flight: int
    persist_errors: int
    engines: list[tuple[str, EngineState, State]]
    pools: list[PoolMoment]
    looks: list[LookRow]
    ledger: LedgerMoment
    # Names of the engines whose breaker a person's override holds open or closed.
    forced: Set[str] = frozenset()
    rooms: Sequence[RoomMoment] = ()
    certificate_ends_at: float | None = None
    sessions: Sequence[BusiestSession] = ()
    process: ProcessMoment = field(default_factory=own_process)


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
        certificate = GaugeMetricFamily(
            "headworks_gateway_certificate_expiry_time_seconds",
            "Unix time at which the gateway's TLS certificate ends.",
        )
        if now.certificate_ends_at is not None:
            certificate.add_metric([], now.certificate_ends_at)
        yield certificate
        labels = ["pool", "engine"]
        reserved = GaugeMetricFamily(
            "headworks_gateway_kv_reserved_tokens", "KV cache tokens that running requests may need.", labels=labels
        )
        running = GaugeMetricFamily("headworks_gateway_engine_requests", "Requests at the engine.", labels=labels)
        sequences = GaugeMetricFamily(
            "headworks_gateway_engine_sequences", "Sequences of the requests at the engine: n counts n.", labels=labels
        )
        breaker = GaugeMetricFamily(
            "headworks_gateway_breaker_state",
            "1 for the state that holds, overrides included.",
            labels=[*labels, "state"],
        )
        forced = GaugeMetricFamily(
            "headworks_gateway_breaker_forced", "1 while an override holds the breaker open or closed.", labels=labels
        )
        for pool, engine, state in now.engines:
            reserved.add_metric([pool, engine.name], engine.reserved_tokens)
            running.add_metric([pool, engine.name], engine.in_flight)
            forced.add_metric([pool, engine.name], float(engine.name in now.forced))
            sequences.add_metric([pool, engine.name], engine.sequences)
            for possible in _BREAKER_STATES:
                breaker.add_metric([pool, engine.name, possible], float(possible == state))
        yield from (reserved, running, sequences, breaker, forced)
        yield from pool_families(now.pools)
        yield from look_families(now.looks)
        yield from ledger_families(now.ledger)
        yield from line_families(now.rooms)
        yield from session_families(now.sessions)
        yield from process_families(now.process)
