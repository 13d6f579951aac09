"""Pools as their pages show them: how they stand now, what leads to them, who used them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from django.utils import timezone

from controlplane import settings_rows
from controlplane.breakers.standing import Forced
from controlplane.fleet.models import Engine, Model, Pool
from controlplane.routing.models import Route
from controlplane.web.listed import Listed, Wanted, listed
from controlplane.web.measured import FRESH_SECONDS, Board, Numbers, Question, fresh, in_last_hour, soon
from controlplane.web.shown import pool_readings
from controlplane.web.shown.overview import stands
from controlplane.web.shown.pool_readings import WorkingEngine
from controlplane.web.shown.pool_words import Engines, Reading

# A person reads no more; the metrics have all.
USAGE_ROWS = 50
_POOL_BREAKER = fresh('headworks_gateway_pool_breaker_state{gateway!=""}')
_ENGINE_BREAKER = fresh('headworks_gateway_breaker_state{gateway!="",state!="closed"}')


def _p95(name: str) -> str:
    return f"histogram_quantile(0.95, sum by (pool, le) (rate(headworks_gateway_{name}_seconds_bucket[5m])))"


QUESTIONS = {
    "queue_length": Question(f"sum by (pool) ({fresh('headworks_gateway_queue_length')})", ("pool",)),
    "queue_tokens": Question(f"sum by (pool) ({fresh('headworks_gateway_queue_tokens')})", ("pool",)),
    "ttft_p95": Question(_p95("ttft"), ("pool",)),
    "tpot_p95": Question(_p95("tpot"), ("pool",)),
    "e2e_p95": Question(_p95("e2e"), ("pool",)),
    # How many gateways see the pool's own breaker so, and how many of its engines' breakers are so at any gateway.
    "pool_breakers": Question(f"count by (pool, state) ({_POOL_BREAKER} == 1)", ("pool", "state")),
    "engine_breakers": Question(
        f"count by (pool, state) (max by (pool, engine, state) ({_ENGINE_BREAKER}) == 1)", ("pool", "state")
    ),
}
board = Board("pools-live", QUESTIONS)


@dataclass(frozen=True)
class Leading:
    """A route that leads to a pool: with what part of its requests, as a fallback, or as the small model's pool."""

    route: str
    permille: int | None = None
    fallback: bool = False
    cascade: bool = False

    @property
    def percent(self) -> float | None:
        return None if self.permille is None else self.permille / 10


@dataclass(frozen=True)
class Breakers:
    """`state` is the gravest that holds for the pool itself, empty where no gateway told.

    `gateways` see it so; `engines_open` and `engines_half_open` count its engines. A person `forced` it: its look.
    """

    state: str
    gateways: int
    engines_open: int
    engines_half_open: int
    forced: str


@dataclass(frozen=True)
class Live:
    """What was measured of a pool, beside `Reading`: None where it was not. p95 are of the last 5 minutes."""

    reading: Reading
    queue_length: int | None
    queue_tokens: int | None
    ttft_p95_ms: int | None
    tpot_p95_ms: int | None
    e2e_p95_ms: int | None
    breakers: Breakers


@dataclass(frozen=True)
class PoolLine:
    row: Pool
    engines: Engines
    live: Live
    leading: list[Leading]

    @property
    def kv_left_percent(self) -> float | None:
        ratio = self.live.reading.kv_left_ratio
        return None if ratio is None else 100 * ratio

    @property
    def kv_used_percent(self) -> float | None:
        left = self.kv_left_percent
        return None if left is None else 100 - left

    @property
    def kv_is_full(self) -> bool:
        """Beyond what gateways admit."""
        used = self.kv_used_percent
        return used is not None and used * 10 >= self.row.kv_admit_permille

    @property
    def stale_seconds(self) -> float | None:
        """How old what is known of KV cache is, where that is too long for it to be so now."""
        age = self.live.reading.age_seconds
        return age if age is not None and age > FRESH_SECONDS else None

    @property
    def objective_percent(self) -> float:
        return self.row.objective_permille / 10

    @property
    def goodput_percent(self) -> float | None:
        ratio = self.live.reading.goodput_ratio
        return None if ratio is None else 100 * ratio

    @property
    def goodput_missed(self) -> bool:
        percent = self.goodput_percent
        return percent is not None and percent * 10 < self.row.objective_permille

    @property
    def ttft_missed(self) -> bool:
        return _beyond(self.live.ttft_p95_ms, self.row.ttft_slo_ms)

    @property
    def tpot_missed(self) -> bool:
        return _beyond(self.live.tpot_p95_ms, self.row.tpot_slo_ms)

    @property
    def e2e_missed(self) -> bool:
        return _beyond(self.live.e2e_p95_ms, self.row.e2e_slo_ms)


@dataclass(frozen=True)
class Pools:
    """`missing`: why nothing measured is shown. `listed`: where `lines` are a page of all pools, which."""

    lines: list[PoolLine]
    missing: str
    listed: Listed[Pool] | None = None


@dataclass(frozen=True)
class Usage:
    """What one tenant sent to a pool in the last hour."""

    tenant: str
    requests: int
    refused: int
    tokens: int


def pools(wanted: Wanted) -> Pools:
    """A page of them by name, in a number of queries that does not grow with them."""
    rows = Pool.objects.select_related("model").filter(name__icontains=wanted.text)
    page = listed(rows.order_by("name"), wanted)
    return replace(_pools(list(page.rows)), listed=page)


def pools_of(model: Model) -> Pools:
    """Those of one model."""
    return _pools(list(Pool.objects.select_related("model").filter(model=model).order_by("name")))


def pool_line(row: Pool) -> tuple[PoolLine, str]:
    """One pool, and why nothing measured is shown of it."""
    found = _pools([row])
    return found.lines[0], found.missing


def usage_of(pool: str) -> tuple[list[Usage], int, str]:
    """Who used it in the last hour, the most first; how many more did; and why that is not known, where it is not."""
    numbers = soon(usage_questions(pool))
    found = [
        Usage(tenant, round(count), *(round(numbers.of(name, tenant) or 0) for name in ("refused", "tokens")))
        for (tenant,), count in numbers.all("requests").items()
        if round(count) > 0
    ]
    found.sort(key=lambda usage: (-usage.requests, usage.tenant))
    return found[:USAGE_ROWS], max(0, len(found) - USAGE_ROWS), numbers.missing


def usage_questions(pool: str) -> dict[str, Question]:
    """All that is asked of one pool's last hour."""

    def counted(name: str, more: str = "") -> str:
        return in_last_hour(f"headworks_gateway_{name}_total{{pool={json.dumps(pool)}{more}}}", "tenant")

    tokens = f"{counted('prompt_tokens')} + {counted('generation_tokens')}"
    asked = {"requests": counted("requests"), "refused": counted("requests", ',outcome="refused"'), "tokens": tokens}
    return {name: Question(promql, ("tenant",)) for name, promql in asked.items()}


def _pools(rows: list[Pool]) -> Pools:
    now, silent = timezone.now(), timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    forced, engines = Forced(now), defaultdict[int, list[tuple[Engine, str]]](list)
    for engine in Engine.objects.filter(pool__in=rows).select_related("node", "pool"):
        engines[engine.pool_id].append((engine, stands(engine, now, silent, forced)))
    readings, numbers = pool_readings.board.get(), board.get()
    working = {
        row.name: [
            WorkingEngine(engine.name, engine.kv_capacity_tokens)
            for engine, standing in engines[row.pk]
            if standing in ("up", "unknown")
        ]
        for row in rows
    }
    read = pool_readings.readings(readings, working, now.timestamp())
    leading = _leading(Route.objects.all())
    lines = []
    for row in rows:
        counted = Engines(**Counter(standing for _engine, standing in engines[row.pk]))
        live = _live(row.name, read[row.name], numbers, forced)
        lines.append(PoolLine(row, counted, live, leading.get(row.name, [])))
    return Pools(lines, readings.missing or numbers.missing)


def _live(pool: str, reading: Reading, numbers: Numbers, forced: Forced) -> Live:
    turns = forced.turns(("pool", pool))
    seen = {state: numbers.of("pool_breakers", pool, state) for state in ("open", "half_open", "closed")}
    state = next((state for state, gateways in seen.items() if gateways), "")
    engines_open, engines_half_open = (
        _whole(numbers.of("engine_breakers", pool, state)) or 0 for state in ("open", "half_open")
    )
    gateways = _whole(seen.get(state)) or 0
    breakers = Breakers(
        state, gateways, engines_open, engines_half_open, f"forced_{turns[0]['state']}" if turns else ""
    )
    return Live(
        reading,
        _whole(numbers.of("queue_length", pool)),
        _whole(numbers.of("queue_tokens", pool)),
        _milliseconds(numbers.of("ttft_p95", pool)),
        _milliseconds(numbers.of("tpot_p95", pool)),
        _milliseconds(numbers.of("e2e_p95", pool)),
        breakers,
    )


def _leading(routes: Iterable[Route]) -> Mapping[str, list[Leading]]:
    """By pool, in the order in which routes are tried."""
    found: defaultdict[str, list[Leading]] = defaultdict(list)
    for route in routes:
        for pool, permille in (route.pools or {}).items():
            found[pool].append(Leading(route.name, permille))
        for pool in sorted(route.fallbacks or {}):
            found[pool].append(Leading(route.name, fallback=True))
        if route.cascade:
            found[route.cascade["pool"]].append(Leading(route.name, cascade=True))
    return found


def _beyond(took_ms: int | None, promised_ms: int | None) -> bool:
    return took_ms is not None and promised_ms is not None and took_ms > promised_ms


def _milliseconds(seconds: float | None) -> int | None:
    return _whole(None if seconds is None else 1000 * seconds)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
