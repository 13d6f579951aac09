"""Whether the fleet is all right, and if not, why: every pool in a sentence, what fires, what limits, what converges.

The same for the page and for REST, in a number of queries that does not grow with the fleet.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Exists
from django.utils import timezone

from controlplane import settings_rows
from controlplane.breakers.standing import Forced
from controlplane.configs.convergence import State as TargetState
from controlplane.configs.history import Damaged
from controlplane.fleet.models import Engine, Pool
from controlplane.tenants.models import TenantKey
from controlplane.web.convergence import standing
from controlplane.web.measured import FRESH_SECONDS, Numbers
from controlplane.web.shown import first_steps, overview_words, pool_readings, pool_words
from controlplane.web.shown.diagnosis import TopFinding, top_findings
from controlplane.web.shown.firing import Firing, firing
from controlplane.web.shown.pool_readings import WorkingEngine
from wire.canonical import Document

TARGETS_NAMED = 5
# Engines that were told to do nothing.
_IDLE_CONDITIONS = ("paused", "sleeping")
_MS_PER_SECOND = 1000


@dataclass(frozen=True)
class PoolLine:
    """One pool. `kv_capacity_tokens`: of its engines that take requests, None where one has not told its own."""

    facts: pool_words.Facts
    reading: pool_words.Reading
    reasons: list[pool_words.Reason]
    model: str
    kv_capacity_tokens: int | None

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def state(self) -> pool_words.State:
        return pool_words.state_of(self.reasons)

    @property
    def is_stale(self) -> bool:
        age_seconds = self.reading.age_seconds
        return age_seconds is not None and age_seconds > FRESH_SECONDS

    @property
    def sentence(self) -> str:
        return pool_words.sentence(self.reading, self.facts.engines)

    @property
    def why(self) -> list[str]:
        return [pool_words.why(reason) for reason in self.reasons]

    @property
    def promises(self) -> list[tuple[str, float, float | None]]:
        """Name, seconds and the part of requests that kept it, of each promise."""
        promised = self.facts.promises
        return [
            (name, promised[name], self.reading.kept_ratios.get(name))
            for name in pool_words.PROMISES
            if name in promised
        ]


class Spread(NamedTuple):
    """How far the newest configuration has come. `troubled`: the first targets that refuse it or are lost.

    `published_at` is None where there is no revision yet; `damaged`: it cannot be read.
    """

    revision: int | None
    published_at: datetime | None
    applied: int
    targets: list[Document]
    damaged: bool = False

    def names(self, *states: TargetState) -> list[str]:
        return [target["name"] for target in self.targets if target["state"] in states]

    @property
    def troubled(self) -> list[Document]:
        states = (TargetState.REFUSED, TargetState.LOST)
        return [target for target in self.targets if target["state"] in states][:TARGETS_NAMED]


@dataclass(frozen=True)
class Overview:
    """Pools with trouble first. `metrics_missing`: why nothing measured is shown; empty: it is."""

    at: datetime
    pools: list[PoolLine]
    metrics_missing: str
    findings: list[TopFinding]
    firing: Firing
    spread: Spread
    steps: list[first_steps.Step]

    @property
    def window_minutes(self) -> int:
        """How far numbers of requests look back."""
        return pool_words.WINDOW_SECONDS // 60

    @property
    def seen(self) -> overview_words.Seen:
        spread = self.spread
        return overview_words.Seen(
            pools={line.name: line.state for line in self.pools},
            out=sum(line.facts.engines.out for line in self.pools),
            firing=self.firing.by_severity,
            targets=len(spread.targets),
            refusing=spread.names(TargetState.REFUSED),
            lost=spread.names(TargetState.LOST),
            behind=len(spread.names(TargetState.PENDING, TargetState.NEVER)),
            metrics_missing=bool(self.metrics_missing and self.pools),
            config_damaged=spread.damaged,
        )

    @property
    def troubles(self) -> list[overview_words.Trouble]:
        return overview_words.troubles(self.seen)

    @property
    def state(self) -> overview_words.State:
        return overview_words.state_of(self.seen, self.troubles)

    @property
    def sentence(self) -> str:
        return overview_words.sentence(self.seen, self.troubles)


def overview() -> Overview:
    """All of it, as of now. Never raises for the metrics store, nor for a configuration that cannot be read."""
    now = timezone.now()
    pools = list(
        Pool.objects.select_related("model")
        .annotate(anybody_has_a_key=Exists(TenantKey.objects.all()))
        .order_by("name")
    )
    engines = _engines(now)
    numbers = pool_readings.board.get() if pools else Numbers()
    lines = _lines(pools, engines, numbers)
    spread = _spread()
    return Overview(
        at=now,
        pools=sorted(lines, key=lambda line: (pool_words.STATES.index(line.state), line.name)),
        metrics_missing=numbers.missing,
        findings=top_findings(),
        firing=firing(),
        spread=spread,
        steps=first_steps.steps(
            engines=sum(map(len, engines.values())),
            pools=len(pools),
            targets=spread.targets,
            has_keys=bool(pools) and pools[0].anybody_has_a_key,
        ),
    )


class _EngineSeen(NamedTuple):
    name: str
    stands: str
    kv_capacity_tokens: int | None


def _engines(now: datetime) -> Mapping[int, list[_EngineSeen]]:
    """By pool. `stands` names a field of `pool_words.Engines`."""
    found: defaultdict[int, list[_EngineSeen]] = defaultdict(list)
    silent = timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    forced = Forced(now)
    rows = Engine.objects.select_related("node", "pool").defer("facts", "encrypted_api_key", "error").order_by("name")
    for row in rows:
        found[row.pool_id].append(_EngineSeen(row.name, stands(row, now, silent, forced), row.kv_capacity_tokens))
    return found


def stands(row: Engine, now: datetime, silent: timedelta, forced: Forced) -> str:
    """Whether it takes requests, by the name of the field of `pool_words.Engines` that counts it."""
    if row.takes_no_work or forced.holds_open(row):
        return "out"
    # What a silent agent said last says nothing of now. One that nobody watches may well serve.
    if row.node is not None and (row.node.reported_at is None or now - row.node.reported_at > silent):
        return "unknown"
    if row.state == "down" or row.condition == "hung":
        return "down"
    if row.condition in _IDLE_CONDITIONS:
        return "out"
    return "up" if row.state == "up" else "unknown"


def _lines(pools: Sequence[Pool], engines: Mapping[int, list[_EngineSeen]], numbers: Numbers) -> list[PoolLine]:
    working = {
        row.name: [
            WorkingEngine(each.name, each.kv_capacity_tokens)
            for each in engines.get(row.pk, ())
            if each.stands in ("up", "unknown")
        ]
        for row in pools
    }
    readings = pool_readings.readings(numbers, working, time.time())
    return [_line(row, engines.get(row.pk, []), working[row.name], readings[row.name]) for row in pools]


def _line(row: Pool, engines: list[_EngineSeen], working: list[WorkingEngine], reading: pool_words.Reading) -> PoolLine:
    stands = [each.stands for each in engines]
    names = ("up", "down", "out", "unknown")
    facts = pool_words.Facts(
        name=row.name,
        engines=pool_words.Engines(**{name: stands.count(name) for name in names}),
        promises=_promises(row),
        objective_ratio=row.objective_permille / 1000,
        kv_admit_ratio=row.kv_admit_permille / 1000,
        queue_ttl_seconds=row.queue_ttl_ms / _MS_PER_SECOND,
    )
    sizes = [engine.kv_capacity_tokens for engine in working]
    known = [size for size in sizes if size is not None]
    capacity = sum(known) if known and len(known) == len(sizes) else None
    return PoolLine(facts, reading, pool_words.reasons(facts, reading), row.model.name, capacity)


def _promises(row: Pool) -> dict[str, float]:
    told = {name: getattr(row, f"{name}_slo_ms") for name in pool_words.PROMISES}
    return {name: ms / _MS_PER_SECOND for name, ms in told.items() if ms}


def _spread() -> Spread:
    try:
        now = standing()
    except Damaged:
        # The hub's log says what is wrong.
        return Spread(None, None, 0, [], damaged=True)
    published_at = datetime.fromisoformat(now["published_at"]) if now["published_at"] else None
    return Spread(now["revision"], published_at, now["applied"], now["targets"])
