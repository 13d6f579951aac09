"""The fleet as detectors see it: rows of one transaction, quantiles of sketches, and who uses which pool.

A dozen queries, however large the fleet. Sketches are of minutes and many: what they say is kept for one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from controlplane.alerts.models import NodeEvent
from controlplane.alerts.services import events
from controlplane.core.errors import Refused
from controlplane.core.fields import epoch_ms
from controlplane.core.nouns import Noun
from controlplane.diagnosis.asking import in_window
from controlplane.diagnosis.detector import WINDOW, Fleet, Lengths, PoolFacts
from controlplane.fleet.models import Engine, Gpu
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS, describe_gpu, described_with_facts
from controlplane.fleet.services.nodes import described_with_health
from controlplane.routing.services import ROUTES
from controlplane.telemetry.decisions.sketches import Span, lengths_by_pool, whole_minutes
from controlplane.telemetry.results import Sample
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS, TENANTS
from wire.canonical import Document
from wire.sketches import quantile

LENGTHS_SPAN = EVENTS_SPAN = timedelta(hours=1)
# A storm of events says no more than its newest.
EVENTS_MAX = 2000
QUANTILES_PERMILLE = (*range(100, 1000, 100), 950, 990)
_KEPT_MS = 60_000
_TOKENS = [f"headworks_gateway_{which}_tokens_total" for which in ("prompt", "generation")]
# Tokens a second of each tenant in each pool.
SHARES_QUERY = " or ".join(f'label_replace(sum by (pool, tenant) (rate({name}[{WINDOW}])), "of", "{name}", "", "")'
                           for name in _TOKENS)  # fmt: skip


def shares_query(window_seconds: int) -> str:
    return in_window(SHARES_QUERY, window_seconds)


def shares_of(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """Pool → tenant → its part of the pool's tokens, 0 to 1, from what `shares_query` answers."""
    tokens: dict[str, dict[str, float]] = {}
    for sample in samples:
        pool, tenant = sample.labels.get("pool"), sample.labels.get("tenant")
        if pool and tenant and math.isfinite(sample.value) and sample.value > 0:
            of_pool = tokens.setdefault(pool, {})
            of_pool[tenant] = of_pool.get(tenant, 0.0) + sample.value
    return {
        pool: {tenant: each / sum(of_pool.values()) for tenant, each in sorted(of_pool.items())}
        for pool, of_pool in tokens.items()
    }


@dataclass
class _Kept:
    """What sketches said, and when they were read."""

    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    read_ms: int | None = None


_kept = _Kept()


def load(at: datetime, window_seconds: int, tenants_of: Mapping[str, Mapping[str, float]]) -> Fleet:
    lengths = _lengths(at)
    with transaction.atomic():
        engines = list(ENGINES.queryset().order_by("name"))
        described = {row["name"]: row for row in described_with_facts(engines)}
        nodes = described_with_health(list(NODES.queryset().order_by("name")), at)
        return Fleet(
            at=at,
            window_seconds=window_seconds,
            pools=_pools(engines, lengths),
            engines=described,
            nodes={row["name"]: row for row in nodes},
            gpus=tuple(describe_gpu(row) for row in Gpu.objects.select_related("node").order_by("pk")),
            models=_described(MODELS),
            tenants=_described(TENANTS),
            priority_classes=_described(PRIORITY_CLASSES),
            session_limits=_described(SESSION_LIMITS),
            routes=tuple(_described(ROUTES).values()),
            events=tuple(_events(at)),
            tenants_of=tenants_of,
            cache_policies=_described(CACHE_POLICIES),
        )


def _described(noun: Noun[Any]) -> dict[str, Document]:
    return {row.name: noun.describe(row) for row in noun.queryset().order_by("name")}


def _pools(engines: Iterable[Engine], lengths: Mapping[str, Lengths]) -> dict[str, PoolFacts]:
    working: dict[str, list[Engine]] = {}
    for engine in engines:
        if not engine.takes_no_work:
            working.setdefault(engine.pool.name, []).append(engine)
    return {
        name: PoolFacts(
            row,
            tuple(engine.name for engine in working.get(name, ())),
            _capacity_tokens(working.get(name, ())),
            lengths.get(name),
        )
        for name, row in _described(POOLS).items()
    }


def _capacity_tokens(engines: Iterable[Engine]) -> int | None:
    """None where there is none, or one has not told its own."""
    told = [engine.kv_capacity_tokens for engine in engines]
    return sum(tokens for tokens in told if tokens is not None) if told and None not in told else None


def _events(at: datetime) -> list[Document]:
    """Oldest first."""
    recent = NodeEvent.objects.filter(received_at__gt=at - EVENTS_SPAN, received_at__lte=at).order_by("-received_at")
    rows = recent.select_related("incident")[:EVENTS_MAX]
    return [
        {**events.describe(row), "incident_state": row.incident.state if row.incident else None}
        for row in reversed(rows)
    ]


def _lengths(at: datetime) -> Mapping[str, Lengths]:
    now_ms = epoch_ms(at)
    if _kept.read_ms is None or not 0 <= now_ms - _kept.read_ms < _KEPT_MS:
        _kept.lengths, _kept.read_ms = _read_lengths(now_ms), now_ms
    return _kept.lengths


def _read_lengths(now_ms: int) -> dict[str, Lengths]:
    span_ms = round(LENGTHS_SPAN / timedelta(milliseconds=1))
    try:
        counted = lengths_by_pool(whole_minutes(Span(now_ms - span_ms, now_ms)))
    except Refused:
        # More than can be read in a round: then nothing is known of lengths.
        return {}
    return {pool: _lengths_of(counts) for pool, counts in counted.items() if any(counts.values())}


def _lengths_of(counts: Mapping[str, dict[int, int]]) -> Lengths:
    return Lengths(
        counted=sum(counts["prompt_tokens"].values()), **{name: _quantiles(part) for name, part in counts.items()}
    )


def _quantiles(counts: Mapping[int, int]) -> dict[int, int]:
    found = ((permille, quantile(counts, permille)) for permille in QUANTILES_PERMILLE)
    return {permille: tokens for permille, tokens in found if tokens is not None}
