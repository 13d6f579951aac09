"""Row 9: clients ask again and again for what was just refused, and so keep it refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql, refusals
from controlplane.diagnosis.detectors.confidence import combined

# Seed 1, section 9: what clients may retry of what succeeds, and the share of errors that opens a breaker.
RETRY_BUDGET, _REJECTED_SHARE = 0.1, 0.2
_RISEN = 1.25
# A single tenant's retries that mean something.
_RETRIES_MIN = 5.0
_BREAKER_ERROR_PERMILLE = 200
# A breaker needs some requests to judge; more than half of what comes in its window it may never see.
_BREAKER_MINIMUM = 5
STORM_QUERIES = {
    "retries": refusals.by_tenant('headworks_gateway_repeated_requests_total{kind="retry"}'),
    "asked": refusals.by_tenant(refusals.PAST_LIMITS),
    "own_limits": refusals.by_tenant(refusals.OWN_LIMITS),
    "for_capacity": refusals.by_tenant(refusals.FOR_CAPACITY),
    "failed": refusals.by_tenant(refusals.FAILED),
    "left": refusals.by_tenant(refusals.LEFT),
}


class Storm(NamedTuple):
    """Of one window. `retries`: those that the tenants' own limits did not stop; `asked`: likewise.

    `rejected`: refused for want of capacity, failed, or left by a client that had enough of waiting. `tenants`: who
    retries, and how often.
    """

    asked: float
    retries: float
    rejected: float
    failed: float
    tenants: Mapping[str, float]


def storms(readings: Readings) -> dict[str, Storm]:
    """The pools with a retry storm."""
    found = {}
    asked, failed = readings.by_pool("asked"), readings.by_pool("failed")
    endings = [readings.by_pool(name) for name in ("for_capacity", "failed", "left")]
    for pool, requests in asked.items():
        by_tenant = dict(_past_limits(pool, readings))
        retries, turned_away = sum(by_tenant.values()), sum(ending.get(pool, 0.0) for ending in endings)
        if requests < refusals.REQUESTS_MIN:
            continue
        if retries >= RETRY_BUDGET * requests and turned_away >= _REJECTED_SHARE * requests:
            found[pool] = Storm(requests, retries, turned_away, failed.get(pool, 0.0), by_tenant)
    return found


def _past_limits(pool: str, readings: Readings) -> Iterator[tuple[str, float]]:
    stopped = readings.by("own_limits", "pool", "tenant")
    for (of, tenant), retries in readings.by("retries", "pool", "tenant").items():
        past = retries - stopped.get((of, tenant), 0.0)
        if of == pool and past > 0:
            yield tenant, past


class RetryStorm(Detector):
    """At least a tenth of what comes is the same as within the last minute, and at least a fifth comes to nothing.

    Retries that a tenant's own limits stop are no storm any more, and are left out. Repeat questions (row 12) are of
    others, or later, and are answered. Queue debt (row 8) refuses as much, but to clients that wait as they should.
    """

    number = 9
    name = "retry_storm"
    title = _("Retry storm")
    explanation = _(
        "Where a queue is full, clients that try again at fixed intervals multiply the load just when there is least "
        "room for it, and keep the fleet from recovering: often not the fault itself but the answer to it is what "
        "lasts. Back off exponentially with full jitter, retry at most a tenth of what succeeds, and let an open "
        "breaker refuse before the GPU is asked."
    )
    queries: ClassVar = {
        **STORM_QUERIES,
        "answers": refusals.by_tenant(f'{refusals.REQUESTS}{{outcome="ok"}}'),
        "asked_before": promql.counted(refusals.PAST_LIMITS, "pool", offset=promql.BEFORE),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, storm in storms(readings).items():
            if pool in fleet.pools:
                yield self._finding(fleet.pools[pool], storm, readings, fleet)

    def _finding(self, facts: PoolFacts, storm: Storm, readings: Readings, fleet: Fleet) -> Finding:
        pool, before = facts.row["name"], readings.by_pool("asked_before").get(facts.row["name"])
        retried, rejected = storm.retries / storm.asked, storm.rejected / storm.asked
        signals = [700 if retried >= 2 * RETRY_BUDGET else 550, 400 if rejected >= 2 * _REJECTED_SHARE else 250]
        if before is not None and storm.asked >= _RISEN * before:
            signals.append(300)
        named = {
            name: retries
            for name, retries in storm.tenants.items()
            if retries >= _RETRIES_MIN and name in fleet.tenants
        }
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _("{pool}: {retried:.0%} of the requests are retries, and {rejected:.0%} come to nothing"),
                pool=pool, retried=retried, rejected=rejected,
            ),
            confidence_permille=combined(*signals),
            evidence=(
                Evidence("retries", retried, "ratio", RETRY_BUDGET, self.queries["retries"]),
                Evidence("come_to_nothing", rejected, "ratio", _REJECTED_SHARE, self.queries["for_capacity"]),
                Evidence("requests", storm.asked, "requests", None, self.queries["asked"]),
                *(() if before is None else (Evidence("requests_before", before, "requests"),)),
            ),
            pools=(pool,),
            tenants=tuple(sorted(named, key=lambda name: (-named[name], name))),
            levers=tuple(_levers(facts, storm, named, readings, fleet)),
        )  # fmt: skip


def _levers(
    facts: PoolFacts, storm: Storm, named: Mapping[str, float], readings: Readings, fleet: Fleet
) -> Iterator[Lever]:
    edits = tuple(_budgets(named, readings, fleet))
    if edits:
        yield Lever(
            key="retry_budget",
            title=format_lazy(_("A limit of requests a minute for {tenants}"), tenants=", ".join(e.key for e in edits)),
            why=_(
                "As many as each asks for the first time, or is answered, and a tenth more for retries. What is beyond "
                "is refused at the door with 429 and Retry-After, and takes no place in a queue."
            ),
            edits=edits,
        )
    breaker = _breaker(facts, storm, fleet.window_seconds)
    if breaker:
        yield Lever(
            key="breaker",
            title=format_lazy(_("Let the breaker of {pool} open earlier"), pool=facts.row["name"]),
            why=format_lazy(
                _("{failed:.0%} of the requests fail at engines, and the breaker does not open, or too late."),
                failed=storm.failed / storm.asked,
            ),
            edits=(Edit("pools", facts.row["name"], {"breaker": breaker}),),
        )
    yield Lever(
        key="full_jitter",
        title=_("Clients back off with full jitter"),
        why=_("Clients that retry at fixed intervals come again together, however long the interval."),
        advice=_(
            "Wait random(0, min(longest, base × 2^attempt)) before each retry, never less than Retry-After says, and "
            "stop at one retry for ten answers."
        ),
    )


def _budgets(named: Mapping[str, float], readings: Readings, fleet: Fleet) -> Iterator[Edit]:
    """Of all pools together, since a tenant's limit holds for all.

    Requests count when they end, retries when they come: of a storm that begins more retries than requests are known.
    """
    answers = _of_tenants("answers", readings)
    asked, retries = _of_tenants("asked", readings), _of_tenants("retries", readings)
    own_limits = _of_tenants("own_limits", readings)
    for tenant in sorted(named):
        came = asked.get(tenant, 0.0) + own_limits.get(tenant, 0.0)
        first = max(came - retries.get(tenant, 0.0), answers.get(tenant, 0.0)) * 60 / fleet.window_seconds
        limit, now = max(1, math.ceil(round(first * (1 + RETRY_BUDGET), 6))), fleet.tenants[tenant]["rpm_limit"]
        if now is None or limit < now:
            yield Edit("tenants", tenant, {"rpm_limit": limit})


def _of_tenants(query: str, readings: Readings) -> dict[str, float]:
    return {tenant: value for (tenant,), value in readings.by(query, "tenant").items()}


def _breaker(facts: PoolFacts, storm: Storm, window_seconds: int) -> dict[str, int]:
    """Thresholds that would have opened it; empty where they do already, or where engines do not fail so often."""
    now, breaker = facts.row["breaker"], dict[str, int]()
    if storm.failed < _REJECTED_SHARE * storm.asked:
        return breaker
    if now["error_permille"] > _BREAKER_ERROR_PERMILLE:
        breaker["error_permille"] = _BREAKER_ERROR_PERMILLE
    seen = storm.asked / window_seconds * now["window_ms"] / 1000
    if now["minimum_requests"] > seen / 2:
        minimum = max(_BREAKER_MINIMUM, int(seen / 2))
        if minimum < now["minimum_requests"]:
            breaker["minimum_requests"] = minimum
    return breaker
