"""Breakers in the form that pages show: what each gateway said last, since when, and what failed meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from controlplane.breakers import standing
from controlplane.breakers.standing import Forced
from controlplane.core import fields as f
from controlplane.fleet.models import Pool
from controlplane.telemetry import query
from controlplane.telemetry.promql.written import one_of
from controlplane.web.measured import Question, ask
from wire.canonical import Document

# In which it is looked for when a breaker was closed last, and in what steps.
SINCE_MS, STEP_MS = 3_600_000, 15_000
# In which the requests of a pool are counted whose breakers are not closed.
COUNTED = "5m"
GATEWAYS_NAMED, REASONS_NAMED = 6, 4
# Of so many breakers that are not closed it is asked since when; where more are not, it is no matter of one of them.
ASKED_MAX = 50
_SERIES = {"engine": "headworks_gateway_breaker_state", "pool": "headworks_gateway_pool_breaker_state"}
# What needs a look comes first.
_ORDER = {"open": 0, "half_open": 1, "unknown": 2, "closed": 3}
# (kind, name, gateway)
At = tuple[str, str, str]


class Seen(NamedTuple):
    """One state and the gateways that told of it. `since`: when the first of them was closed last, where known."""

    state: str
    gateways: list[str]
    more: int
    since: datetime | None

    @property
    def look(self) -> str:
        return self.state if self.state == "unknown" else f"breaker_{self.state}"


class Line(NamedTuple):
    """One breaker. `turns`: the override that holds it, then those that will where nobody acts."""

    kind: str
    name: str
    cordoned: bool
    turns: list[Document]
    seen: list[Seen]

    @property
    def forced(self) -> Document | None:
        return self.turns[0] if self.turns else None

    @property
    def forced_look(self) -> str:
        return f"forced_{self.turns[0]['state']}" if self.turns else ""

    @property
    def forced_until(self) -> datetime | None:
        return datetime.fromisoformat(self.turns[0]["expires_at"]) if self.turns else None

    @property
    def is_quiet(self) -> bool:
        """Whether it is closed wherever something is known of it, and nobody forced it."""
        return not self.turns and all(each.state in ("closed", "unknown") for each in self.seen)


class Failures(NamedTuple):
    """What became of a pool's requests in the last minutes. `reasons`: the most frequent, each with its count."""

    requests: int
    failed: int
    reasons: list[tuple[str, int]]


class PoolLine(NamedTuple):
    """A pool with its breakers. `loud` engines need a look; `quiet` ones are closed. `failures`: None where unknown."""

    name: str
    thresholds: Document
    own: Line
    loud: list[Line]
    quiet: list[Line]
    failures: Failures | None

    @property
    def error_ratio(self) -> float:
        return float(self.thresholds["error_permille"]) / 1000

    @property
    def timeout_ratio(self) -> float:
        return float(self.thresholds["timeout_permille"]) / 1000

    @property
    def is_quiet(self) -> bool:
        return self.own.is_quiet and not self.loud


class Standing(NamedTuple):
    """Pools with what needs a look, and the others. `missing`: why nothing is known of what gateways told."""

    loud: list[PoolLine]
    quiet: list[PoolLine]
    missing: str


def standing_of(pools: Sequence[Pool], forced: Forced, gateways: Sequence[str] | None = None) -> Standing:
    """The breakers of these pools at `gateways`, or at all that there are."""
    found, missing = standing.breakers(pools, forced, gateways)
    awake = {(kind, name) for kind, name, states in _told(found) if {"open", "half_open"} & set(states.values())}
    since = {} if missing else _closed_last(awake)
    troubled = [pool["pool"] for pool in found if _is_troubled(pool, awake)]
    failures = {} if missing else _failures(troubled)
    lines = [_pool_line(pool, since, failures.get(pool["pool"])) for pool in found]
    loud, quiet = ([line for line in lines if line.is_quiet is is_quiet] for is_quiet in (False, True))
    return Standing(loud, quiet, missing or "")


def _told(found: list[Document]) -> Iterable[tuple[str, str, Mapping[str, str | None]]]:
    for pool in found:
        yield "pool", pool["pool"], pool["gateways"]
        for engine in pool["engines"]:
            yield "engine", engine["engine"], engine["gateways"]


def _is_troubled(pool: Document, awake: Collection[tuple[str, str]]) -> bool:
    engines = (("engine", engine["engine"]) for engine in pool["engines"])
    return ("pool", pool["pool"]) in awake or any(engine in awake for engine in engines)


def _pool_line(pool: Document, since: Mapping[At, datetime], failures: Failures | None) -> PoolLine:
    own = Line("pool", pool["pool"], False, pool["overrides"], _seen("pool", pool["pool"], pool["gateways"], since))
    engines = [
        Line(
            "engine",
            engine["engine"],
            engine["cordoned"],
            engine["overrides"],
            _seen("engine", engine["engine"], engine["gateways"], since),
        )
        for engine in pool["engines"]
    ]
    # The override of the pool is said where it is the pool's; each engine says its own.
    loud = [line for line in engines if not _adds_nothing(line, own)]
    return PoolLine(
        pool["pool"], pool["thresholds"], own, loud, [line for line in engines if line not in loud], failures
    )


def _adds_nothing(line: Line, own: Line) -> bool:
    """Whether all that there is to say of an engine is said of its pool."""
    same = line.turns[:1] == own.turns[:1]
    return line.is_quiet or (bool(own.turns) and same and not line.cordoned)


def _seen(kind: str, name: str, states: Mapping[str, str | None], since: Mapping[At, datetime]) -> list[Seen]:
    by_state: defaultdict[str, list[str]] = defaultdict(list)
    for gateway, state in states.items():
        by_state[state or "unknown"].append(gateway)
    found = []
    for state in sorted(by_state, key=lambda state: _ORDER.get(state, len(_ORDER))):
        gateways = by_state[state]
        moments = [since[at] for gateway in gateways if (at := (kind, name, gateway)) in since]
        first = min(moments, default=None) if state in ("open", "half_open") else None
        more = max(0, len(gateways) - GATEWAYS_NAMED)
        found.append(Seen(state, gateways[:GATEWAYS_NAMED], more, first))
    return found


def closed_query(kind: str, names: Collection[str]) -> str:
    """1 while a breaker was closed at a gateway, else 0."""
    return f'{_SERIES[kind]}{{state="closed",gateway!="",{kind}=~{one_of(names)}}}'


def _closed_last(subjects: Collection[tuple[str, str]]) -> dict[At, datetime]:
    """When each of these was closed last at each gateway, in steps; without those that were not for an hour."""
    found: dict[At, datetime] = {}
    now_ms = f.epoch_ms(timezone.now())
    for kind in _SERIES:
        names = [name for each, name in sorted(subjects) if each == kind][:ASKED_MAX]
        if not names:
            continue
        try:
            steps = now_ms - SINCE_MS, now_ms, STEP_MS
            series = query.range_(closed_query(kind, names), *steps, seconds_max=query.PAGE_SECONDS)
        except query.QueryError:
            # That they are open is known; since when is not.
            continue
        for each in series:
            closed = [at_ms for at_ms, value in zip(each.times_ms, each.values, strict=True) if value == 1]
            if closed:
                at = (kind, each.labels[kind], each.labels["gateway"])
                found[at] = f.from_epoch_ms(min(now_ms, closed[-1] + STEP_MS))
    return found


def failures_query(pools: Collection[str]) -> str:
    """What became of the requests of these pools lately."""
    series = f"headworks_gateway_requests_total{{pool=~{one_of(pools)}}}"
    return f"sum by (pool, outcome, reason) (increase({series}[{COUNTED}]))"


def _failures(pools: list[str]) -> dict[str, Failures]:
    asked = pools[:ASKED_MAX]
    if not asked:
        return {}
    question = Question(failures_query(asked), ("pool", "outcome", "reason"))
    try:
        found = ask({"requests": question}, f.epoch_ms(timezone.now())).all("requests")
    except query.QueryError:
        return {}
    return {pool: _counted({key[1:]: value for key, value in found.items() if key[0] == pool}) for pool in asked}


def _counted(found: Mapping[tuple[str, ...], float]) -> Failures:
    """(outcome, reason) → requests, as counts."""
    reasons: Counter[str] = Counter()
    for (outcome, reason), value in found.items():
        if outcome == "failed":
            reasons[reason] += round(value)
    named = [(reason, count) for reason, count in reasons.most_common(REASONS_NAMED) if count]
    return Failures(round(sum(found.values())), sum(reasons.values()), named)
