"""Row 8: more waits than can be served in the time that anybody waits for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql, refusals
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.kv_pressure import pressed
from controlplane.diagnosis.detectors.noisy_neighbour import CROWDED_QUERIES, crowded
from controlplane.diagnosis.detectors.open_ended_output import OPEN_QUERIES, open_ended
from controlplane.diagnosis.detectors.retry_storm import storms
from policy.queue import MS_PER_SECOND, queue_cap, wait_ms

_QUEUE = "headworks_gateway_queue_length"
_WAITING = "headworks_engine_requests_waiting"
# Seed 1, section 8: its example, where nothing is promised.
_USUAL_WAIT_MS = 5000
# The rate of a window's requests is known to some tenths: a queue that is half as long again is too long for sure.
_TOO_LONG = 1.5
_DEPTH_MIN = 5.0
# Of what comes so much is turned away, or added to what waits: more comes than is served.
_EXCESS_SHARE = 0.1
# Of an acceptable wait the engine's own part of a first token leaves at least so much.
_WAIT_SHARE_MIN = 0.5
DEBT_QUERIES = {
    "served": promql.per_second(f'{refusals.REQUESTS}{{outcome="ok"}}', "pool"),
    "arriving": promql.per_second(refusals.PAST_LIMITS, "pool"),
    "refused_rate": promql.per_second(refusals.FOR_CAPACITY, "pool"),
    "queue_growth": f"sum by (pool) (deriv({_QUEUE}[$window]))",
    "engine_growth": f"sum by (pool) (deriv({_WAITING}[$window]))",
    **CROWDED_QUERIES,
    **OPEN_QUERIES,
}


class Debt(NamedTuple):
    """`limit`: the longest queue that is served in `acceptable_ms`. `excess`: of what comes, what is not served."""

    queue: float
    in_engines: float
    served: float
    acceptable_ms: int
    limit: int
    excess: float

    @property
    def depth(self) -> float:
        return self.queue + self.in_engines


def debts(readings: Readings, fleet: Fleet) -> dict[str, Debt]:
    """Pools with a queue that is too long for their rate, and for no reason that has a name of its own."""
    named = {
        *pressed(readings, fleet), *storms(readings), *crowded(readings, fleet), *open_ended(readings, fleet),
    }  # fmt: skip
    found = {}
    for pool, facts in fleet.pools.items():
        debt = None if pool in named else _debt(facts, readings)
        if debt is None or debt.excess < _EXCESS_SHARE:
            continue
        if debt.depth >= _DEPTH_MIN and debt.depth > _TOO_LONG * debt.limit:
            found[pool] = debt
    return found


def acceptable_wait_ms(facts: PoolFacts) -> int:
    """Who waits longer for a place misses the first token's promise in any case."""
    return int(facts.row["ttft_slo_ms"] or _USUAL_WAIT_MS)


def _debt(facts: PoolFacts, readings: Readings) -> Debt | None:
    pool = facts.row["name"]
    served, arriving = readings.by_pool("served").get(pool), readings.by_pool("arriving").get(pool, 0.0)
    queue, waiting = readings.by_pool("queue").get(pool), readings.by_pool("waiting").get(pool, 0.0)
    if served is None or queue is None or served <= 0:
        return None
    growth = sum(readings.by_pool(name).get(pool, 0.0) for name in ("queue_growth", "engine_growth"))
    lost = readings.by_pool("refused_rate").get(pool, 0.0) + max(0.0, growth)
    acceptable_ms = acceptable_wait_ms(facts)
    # Who came in the window and neither left nor was refused waits.
    came = max(arriving, served + lost)
    return Debt(queue, waiting, served, acceptable_ms, queue_cap(served, acceptable_ms), lost / came)


class QueueDebt(Detector):
    """More waits than half as much again as is served in an acceptable wait, and more comes than is served.

    What makes a queue long in its own way goes before: a full cache (row 1), preemptions (row 2), one tenant (row 6),
    retries (row 9), reservations for nothing (row 10). A queue that is long without growing or refusing anybody is
    head-of-line blocking (row 5).
    """

    number = 8
    name = "queue_debt"
    title = _("Queue debt")
    explanation = _(
        "A queue makes no capacity: where more comes than is served it only keeps the debt, and by the time a request "
        "has its turn its client is gone. The longest queue that makes sense is the service rate times the wait that "
        "is acceptable; what is beyond is refused at once, and what waited too long is dropped before the GPU."
    )
    queries: ClassVar = {
        **DEBT_QUERIES,
        "queue_p95": promql.quantile(0.95, "headworks_gateway_queue_seconds", "pool"),
        "in_flight": promql.typical("headworks_gateway_pool_requests", "pool"),
        "first_token": promql.quantile(0.95, "headworks_engine_ttft_seconds", "pool"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, debt in debts(readings, fleet).items():
            yield self._finding(fleet.pools[pool], debt, readings, fleet)

    def _finding(self, facts: PoolFacts, debt: Debt, readings: Readings, fleet: Fleet) -> Finding:
        pool = facts.row["name"]
        waited = readings.by_pool("queue_p95").get(pool)
        signals = [600 if debt.depth > 2 * _TOO_LONG * debt.limit else 500, 400 if debt.excess >= 0.2 else 250]
        if waited is not None and waited * MS_PER_SECOND > debt.acceptable_ms:
            signals.append(300)
        last_ms = wait_ms(round(debt.depth), debt.served) or 0
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _("{pool}: {depth:.0f} requests wait, {served:.1f} a second are served: the last waits {wait:.0f} s"),
                pool=pool, depth=debt.depth, served=debt.served, wait=last_ms / MS_PER_SECOND,
            ),
            confidence_permille=combined(*signals),
            evidence=(
                Evidence("queue", debt.depth, "requests", _TOO_LONG * debt.limit, self.queries["queue"]),
                Evidence("service_rate", debt.served, "per_second", None, self.queries["served"]),
                Evidence("acceptable_wait", debt.acceptable_ms / MS_PER_SECOND, "seconds"),
                Evidence("unserved_share", debt.excess, "ratio", _EXCESS_SHARE, self.queries["arriving"]),
                *(() if waited is None else (
                    Evidence("queue_p95", waited, "seconds", debt.acceptable_ms / MS_PER_SECOND,
                             self.queries["queue_p95"]),)),
            ),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(_levers(facts, debt, readings)),
        )  # fmt: skip


def _longest_wait_ms(facts: PoolFacts, debt: Debt, readings: Readings) -> int:
    """Who has waited for as long as a first token is promised in misses that by what the engine takes for it."""
    engine_seconds = readings.by_pool("first_token").get(facts.row["name"])
    if engine_seconds is None or not facts.row["ttft_slo_ms"]:
        return debt.acceptable_ms
    left_ms = debt.acceptable_ms - math.ceil(engine_seconds * MS_PER_SECOND)
    return max(left_ms, math.ceil(_WAIT_SHARE_MIN * debt.acceptable_ms))


def _levers(facts: PoolFacts, debt: Debt, readings: Readings) -> Iterator[Lever]:
    pool, row = facts.row["name"], facts.row
    longest_ms, in_flight = _longest_wait_ms(facts, debt, readings), readings.by_pool("in_flight").get(pool, 0.0)
    cap, changes = max(1, queue_cap(debt.served, longest_ms)), dict[str, int]()
    if row["queue_cap"] > cap:
        changes["queue_cap"] = cap
    if row["queue_ttl_ms"] > longest_ms:
        changes["queue_ttl_ms"] = longest_ms
    if changes:
        yield Lever(
            key="queue",
            title=format_lazy(
                _("{pool}: at most {cap} wait, for {wait:g} s"),
                pool=pool, cap=min(cap, row["queue_cap"]), wait=min(longest_ms, row["queue_ttl_ms"]) / 1000,
            ),
            why=format_lazy(
                _(
                    "{served:.1f} requests a second are served; times the {wait:g} s that are acceptable, {cap} may "
                    "wait. What is beyond gets 503 and Retry-After at once."
                ),
                served=debt.served, wait=longest_ms / MS_PER_SECOND, cap=cap,
            ),
            edits=(Edit("pools", pool, changes),),
        )  # fmt: skip
    places = int(in_flight - debt.in_engines)
    if debt.in_engines > debt.queue and places >= 1 and (row["max_concurrency"] or places + 1) > places:
        yield Lever(
            key="concurrency",
            title=format_lazy(_("At most {cap} requests at the engines of {pool}"), cap=places, pool=pool),
            why=format_lazy(
                _("{waiting:.0f} of {all:.0f} requests wait inside the engines, where they have no cap and no TTL."),
                waiting=debt.in_engines, all=in_flight,
            ),
            edits=(Edit("pools", pool, {"max_concurrency": places}),),
        )  # fmt: skip
