"""Row 6: one tenant takes far more of a pool than its weight gives it, and others wait too long."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors import promql, refusals
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.kv_pressure import pressed
from controlplane.diagnosis.detectors.neighbours import Crowding, crowding
from controlplane.diagnosis.detectors.open_ended_output import OPEN_QUERIES, open_ended
from controlplane.diagnosis.detectors.prefill_stall import STALL_QUERIES, stalls
from controlplane.diagnosis.detectors.promises import may_miss, ttft_seconds
from controlplane.diagnosis.detectors.retry_storm import STORM_QUERIES, storms
from controlplane.diagnosis.detectors.waiting_behind import BEHIND_QUERIES, behind

_SLO = "headworks_gateway_slo_requests_total"
# Others' requests that were judged or refused: fewer say nothing of them.
_OTHERS_MIN = 10.0
# Others miss what was promised at least twice as often as they may, and never so seldom that chance does it.
_MISSED_FACTOR, _MISSED_MIN = 2.0, 0.1
# Where nobody waits nobody is in the way.
_WAITING_MIN = 1.0
# The long prompts of a pool are a tenant's own where its prompts are about as long on average; else it has short ones
# that wait behind them, too, and lengths are what is mixed.
_ITS_OWN = 0.75
CROWDED_QUERIES = {
    "prompt_tokens": promql.per_second("headworks_gateway_prompt_tokens_total", "pool", "tenant"),
    "output_tokens": promql.per_second("headworks_gateway_generation_tokens_total", "pool", "tenant"),
    "answered": promql.per_second(f'{refusals.REQUESTS}{{outcome="ok"}}', "pool", "tenant"),
    "judged": refusals.by_tenant(_SLO),
    "missed": refusals.by_tenant(f'{_SLO}{{outcome="missed"}}'),
    "ttft_p95": promql.quantile(0.95, "headworks_gateway_ttft_seconds", "pool", "tenant"),
    "queue": promql.typical("headworks_gateway_queue_length", "pool"),
    "near_limit": promql.counted("headworks_gateway_sessions_near_limit_total", "tenant"),
    **OPEN_QUERIES,
    **STALL_QUERIES,
    **BEHIND_QUERIES,
    **STORM_QUERIES,
}


class Crowded(NamedTuple):
    """`missed`: the share of the other tenants' requests that were late or refused for want of capacity."""

    by: Crowding
    missed: float
    limit: float


def tokens_by_pool(readings: Readings) -> dict[str, dict[str, float]]:
    """Pool → tenant → tokens a second, prompts and outputs together."""
    found: dict[str, dict[str, float]] = {}
    for kind in ("prompt_tokens", "output_tokens"):
        for (pool, tenant), rate in readings.by(kind, "pool", "tenant").items():
            of_pool = found.setdefault(pool, {})
            of_pool[tenant] = of_pool.get(tenant, 0.0) + rate
    return found


def crowded(readings: Readings, fleet: Fleet) -> dict[str, Crowded]:
    """The pools that a tenant crowds, by the tenant's doing and not by its retries or by sessions that ran away."""
    found = {}
    others = {
        *storms(readings), *pressed(readings, fleet), *stalls(readings, fleet), *open_ended(readings, fleet),
    }  # fmt: skip
    runaway, mixed = readings.by("near_limit", "tenant"), behind(readings)
    for pool, shares in tokens_by_pool(readings).items():
        if pool not in fleet.pools or pool in others:
            continue
        by = crowding(shares, fleet)
        waits = sum(readings.by_pool(name).get(pool, 0.0) for name in ("queue", "waiting"))
        if by is None or waits < _WAITING_MIN or runaway.get((by.tenant,), 0.0) >= 0.5:
            continue
        if pool in mixed and _mean_prompt(pool, by.tenant, readings) < _ITS_OWN * mixed[pool].long_tokens:
            continue
        facts = fleet.pools[pool]
        limit = max(_MISSED_MIN, _MISSED_FACTOR * may_miss(facts.row))
        missed = _missed_by_others(pool, by.tenant, readings, ttft_seconds(facts.row))
        if missed is not None and missed > limit:
            found[pool] = Crowded(by, missed, limit)
    return found


def _mean_prompt(pool: str, tenant: str, readings: Readings) -> float:
    """In tokens; without an answered request as long as can be."""
    tokens, answers = (
        readings.by(name, "pool", "tenant").get((pool, tenant), 0.0) for name in ("prompt_tokens", "answered")
    )
    return tokens / answers if answers > 0 else math.inf


def _missed_by_others(pool: str, tenant: str, readings: Readings, usual_seconds: float) -> float | None:
    """None where too little is known of them. Where nothing is promised, waits beyond the usual promise count."""
    judged = _others(pool, tenant, readings, "judged")
    refused = _others(pool, tenant, readings, "for_capacity")
    if judged + refused >= _OTHERS_MIN:
        return (_others(pool, tenant, readings, "missed") + refused) / (judged + refused)
    asked = _others(pool, tenant, readings, "asked")
    late = [
        seconds > usual_seconds
        for (of, other), seconds in readings.by("ttft_p95", "pool", "tenant").items()
        if of == pool and other != tenant
    ]
    return sum(late) / len(late) if late and asked >= _OTHERS_MIN else None


def _others(pool: str, tenant: str, readings: Readings, query: str) -> float:
    found = readings.by(query, "pool", "tenant")
    return sum(value for (of, other), value in found.items() if of == pool and other != tenant)


class NoisyNeighbour(Detector):
    """A tenant with more than half of a pool's tokens, and six times as many for its weight as the others together.

    And requests wait, and the others miss what they were promised. An overload in which all take their share is queue
    debt (row 8). Where requests wait inside the engines for KV cache (rows 1 and 2) the gateway has nobody to be fair
    between: that comes first, as do streams that stand still (row 4) and room that is reserved for nothing (row 10). A
    tenant whose retries (row 9) or whose agent's loops (row 14) make the load is named there. Where it sends long
    prompts and short ones that wait behind them, both are mixed (row 5); one that sends nothing but long ones is the
    neighbour.
    """

    number = 6
    name = "noisy_neighbour"
    title = _("Noisy neighbour")
    explanation = _(
        "One tenant, one script or one batch can use up the tokens that all share while it stays within a limit of "
        "requests: sixty requests a minute of 32,000 tokens each fill a fleet. Limits must count tokens; below them a "
        "fair share by weight keeps those who use little fast and those who use much slow, and nobody waiting for ever."
    )
    queries: ClassVar = {**CROWDED_QUERIES, "in_flight": promql.typical("headworks_gateway_pool_requests", "pool")}

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        by_tenant: dict[str, dict[str, Crowded]] = {}
        for pool, seen in crowded(readings, fleet).items():
            by_tenant.setdefault(seen.by.tenant, {})[pool] = seen
        for tenant, pools in by_tenant.items():
            yield self._finding(tenant, pools, readings, fleet)

    def _finding(self, tenant: str, pools: Mapping[str, Crowded], readings: Readings, fleet: Fleet) -> Finding:
        worst = max(pools, key=lambda pool: (pools[pool].missed, pool))
        seen = pools[worst]
        signals = [
            600 if 1 - seen.by.share <= (1 - seen.by.limit) / 2 else 500,
            600 if seen.missed >= 2 * seen.limit else 400,
        ]
        in_flight = readings.by_pool("in_flight").get(worst, 0.0)
        return Finding(
            subject=f"tenant/{tenant}",
            summary=format_lazy(
                _(
                    "{tenant} takes {share:.0%} of the tokens of {pool}, its weight gives it {fair:.0%}, and others "
                    "miss what is promised in {missed:.0%} of their requests"
                ),
                tenant=tenant, share=seen.by.share, pool=worst, fair=seen.by.fair, missed=seen.missed,
            ),
            confidence_permille=combined(*signals),
            evidence=(
                Evidence("token_share", seen.by.share, "ratio", seen.by.limit,
                         self.queries["prompt_tokens"]),
                Evidence("weight_share", seen.by.fair, "ratio"),
                Evidence("missed_by_others", seen.missed, "ratio", seen.limit, self.queries["missed"]),
            ),
            pools=tuple(sorted(pools)),
            tenants=(tenant,),
            levers=tuple(_levers(tenant, pools, in_flight, readings, fleet)),
        )  # fmt: skip


def _levers(
    tenant: str, pools: Mapping[str, Crowded], in_flight: float, readings: Readings, fleet: Fleet
) -> Iterator[Lever]:
    row, fair = fleet.tenants[tenant], max(seen.by.fair for seen in pools.values())
    limit = _tokens_a_minute(tenant, pools, readings)
    if limit >= 1 and (row["tpm_limit"] is None or limit < row["tpm_limit"]):
        yield Lever(
            key="tpm_limit",
            title=format_lazy(_("{tenant}: at most {limit} tokens a minute"), tenant=tenant, limit=limit),
            why=format_lazy(
                _("What the pools process now, measured while they are full, times its weight's share of {fair:.0%}."),
                fair=fair,
            ),
            edits=(Edit("tenants", tenant, {"tpm_limit": limit}),),
        )
    places = int(fair * in_flight)
    if places >= 1 and (row["max_parallel_requests"] is None or places < row["max_parallel_requests"]):
        yield Lever(
            key="max_parallel_requests",
            title=format_lazy(_("{tenant}: at most {places} requests at once"), tenant=tenant, places=places),
            why=format_lazy(
                _("{all:.0f} requests run at once, times its weight's share of {fair:.0%}."), all=in_flight, fair=fair
            ),
            edits=(Edit("tenants", tenant, {"max_parallel_requests": places}),),
        )
    lower = _lower_class(row, fleet)
    if lower is not None:
        yield Lever(
            key="priority_class",
            title=format_lazy(_("{tenant}: class {name} unless it asks for another"), tenant=tenant, name=lower),
            why=_("Requests of the next class behind its present one are served after those of the others."),
            edits=(Edit("tenants", tenant, {"default_priority_class": lower}),),
        )


def _tokens_a_minute(tenant: str, pools: Mapping[str, Crowded], readings: Readings) -> int:
    """Its share of the pools that it crowds, and what it has of the others."""
    total = 0.0
    for pool, shares in tokens_by_pool(readings).items():
        total += pools[pool].by.fair * sum(shares.values()) if pool in pools else shares.get(tenant, 0.0)
    return int(total * 60)


def _lower_class(row: Mapping[str, object], fleet: Fleet) -> str | None:
    """Of those that it may use the next in rank behind its default."""
    now = fleet.priority_classes.get(str(row["default_priority_class"]))
    allowed = row["priority_classes"]
    if now is None:
        return None
    behind = [
        (each["rank"], name)
        for name, each in fleet.priority_classes.items()
        if each["rank"] > now["rank"] and (not isinstance(allowed, list) or name in allowed)
    ]
    return min(behind)[1] if behind else None
