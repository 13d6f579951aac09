"""Row 13: one question of a user is many model calls, and the plan counted questions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.capacity import carried
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.neighbours import weight_share
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.processors import GPUS_OF_ENGINES
from controlplane.diagnosis.detectors.promises import may_miss
from controlplane.diagnosis.detectors.promql import counted, typical
from controlplane.diagnosis.detectors.refusals import FOR_CAPACITY


class FanOut(Detector):
    """A tenant's sessions make several model calls each, and a pool that they go through is short of capacity.

    The mean is over many sessions: where one alone makes most of the calls it runs away (row 14), and this one is
    silent. Without a pool that misses its promise or turns requests away, fan-out is how that tenant works and no
    bottleneck. The cause of the shortage may be another one as well: then its own row tells the rest.
    """

    number = 13
    name = "fan_out"
    title = _("Fan-out")
    explanation = _(
        "One request of a user is not one model call: retrieval rewrites the query, embeds it, ranks what was found "
        "and generates, four calls to two models; an agent's loop makes 5 to 15. A capacity plan by users' requests is "
        "several times too small. Plan by model calls and tokens, and give embedding and ranking a budget of their own."
    )
    queries: ClassVar = {
        "calls": counted("headworks_gateway_session_requests_total", "pool", "tenant"),
        "sessions": counted("headworks_gateway_sessions_total", "tenant"),
        "busiest": "max by (tenant) (max_over_time(headworks_gateway_session_calls_highest[$window]))",
        "loops": counted("headworks_gateway_repeated_tool_calls_total", "tenant"),
        "requests": counted("headworks_gateway_requests_total", "pool"),
        "turned_away": counted(FOR_CAPACITY, "pool"),
        "missed": counted('headworks_gateway_slo_requests_total{outcome="missed"}', "pool"),
        "judged": counted("headworks_gateway_slo_requests_total", "pool"),
        "queue": typical("headworks_gateway_queue_length", "pool"),
        "gpus": GPUS_OF_ENGINES,
    }
    # A retrieval makes four calls, an agent 5 to 15. Source: seed 1, section 13.
    CALLS_A_SESSION = 4.0
    SESSIONS_LEAST = 5.0
    REQUESTS_LEAST = 30.0
    # One that makes more than a third of all calls is a session that runs away.
    ONE_SESSION_SHARE = 1 / 3
    TURNED_AWAY_SHARE = 0.01
    # Of the calls that come to pools that are short: with as many it is the tenant that they are short for.
    CAUSED_SHARE = 0.5
    # What an embedding or ranking pool may keep of requests at once, of all of those at engines that share its GPUs.
    SIDE_SHARE = 0.25

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        calls = readings.by("calls", "pool", "tenant")
        sessions, busiest = named(readings.by("sessions", "tenant")), named(readings.by("busiest", "tenant"))
        loops = named(readings.by("loops", "tenant"))
        for tenant, begun in sorted(sessions.items()):
            of_pools = {pool: count for (pool, who), count in calls.items() if who == tenant and count > 0}
            made = sum(of_pools.values())
            multiplier = share(made, begun)
            if begun < self.SESSIONS_LEAST or multiplier < self.CALLS_A_SESSION or loops.get(tenant, 0.0) >= 1:
                continue
            if busiest.get(tenant, 0.0) > self.ONE_SESSION_SHARE * made:
                continue
            short = {pool: signs for pool in of_pools if (signs := self._shortage(readings, fleet, pool))}
            if not short:
                continue
            evidence = (
                Evidence("calls_per_session", multiplier, "ratio", self.CALLS_A_SESSION, _calls_expr(fleet, tenant)),
                Evidence("sessions", begun, "count", self.SESSIONS_LEAST),
                *(each for signs in short.values() for each in signs),
            )
            said = format_lazy(
                _("Each session of {tenant} makes {calls} model calls, and {pools} cannot keep up"),
                tenant=tenant, calls=f"{multiplier:.1f}", pools=", ".join(sorted(short)),
            )  # fmt: skip
            pools = tuple(sorted(short, key=lambda pool: (-of_pools[pool], pool)))
            # Of a pool whose calls are mostly others' the tenant is not what it is short of.
            caused = share(sum(of_pools[pool] for pool in short),
                           sum(readings.by_pool("requests").get(pool, 0.0) for pool in short))  # fmt: skip
            confidence = combined(600, *[500] * (multiplier >= 2 * self.CALLS_A_SESSION))
            confidence = confidence if caused >= self.CAUSED_SHARE else lowered(confidence, 600)
            own, side = self._own_share(fleet, tenant, pools), self._side_budgets(readings, fleet, of_pools)
            # Who fills a pool is bounded; where others do, what it asks beside is what they lack.
            bounds = (*own, *side) if caused >= self.CAUSED_SHARE else (*side, *own)
            levers = (*bounds, self._plan(fleet, tenant, multiplier, begun))
            yield Finding(f"tenant/{tenant}", said, confidence, evidence, pools, (tenant,), levers)

    def _shortage(self, readings: Readings, fleet: Fleet, pool: str) -> list[Evidence]:
        """The signs that a pool is short of capacity."""
        facts = fleet.pools.get(pool)
        if facts is None:
            return []
        signs = []
        asked, judged = (readings.by_pool(query).get(pool, 0.0) for query in ("requests", "judged"))
        away = share(readings.by_pool("turned_away").get(pool, 0.0), asked)
        if asked >= self.REQUESTS_LEAST and away >= self.TURNED_AWAY_SHARE:
            signs.append(Evidence(f"turned_away_of_{pool}", away, "ratio", self.TURNED_AWAY_SHARE))
        missed, allowed = share(readings.by_pool("missed").get(pool, 0.0), judged), may_miss(facts.row)
        if judged >= self.REQUESTS_LEAST and missed > allowed:
            signs.append(Evidence(f"missed_of_{pool}", missed, "ratio", allowed))
        if (queue := readings.by_pool("queue").get(pool, 0.0)) >= 1:
            signs.append(Evidence(f"queue_of_{pool}", queue, "requests", 1.0,
                                  f"sum({of('headworks_gateway_queue_length', pool=pool)})"))  # fmt: skip
        return signs

    def _side_budgets(self, readings: Readings, fleet: Fleet, of_pools: dict[str, float]) -> Iterator[Lever]:
        """Bound embedding and ranking where they share GPUs with engines that generate."""
        together = _sharing(readings, fleet)
        for pool in sorted(of_pools):
            facts = fleet.pools.get(pool)
            if facts is None or facts.row["work"] not in ("embedding", "rerank"):
                continue
            beside = together.get(pool, set[str]())
            others = sorted(each for each in beside if fleet.pools[each].row["work"] in ("short", "long"))
            bound = _concurrency(fleet, others)
            if not others or bound is None or (facts.row["max_concurrency"] or math.inf) <= bound * self.SIDE_SHARE:
                continue
            most = max(1, math.floor(bound * self.SIDE_SHARE))
            why = format_lazy(
                _("{pool} shares GPUs with {others}, which may have {bound} requests at once: a quarter for {pool}"),
                pool=pool, others=", ".join(others), bound=bound,
            )  # fmt: skip
            edit = Edit("pools", pool, {"max_concurrency": most})
            yield Lever("side_budget", _("Bound embedding and ranking"), why, (edit,),
                        advice=_("Better still, give them a GPU of their own."))  # fmt: skip

    def _own_share(self, fleet: Fleet, tenant: str, pools: tuple[str, ...]) -> Iterator[Lever]:
        """Let the tenant's calls side by side be no more than its weight gives it of the pools."""
        row, bound = fleet.tenants.get(tenant), _concurrency(fleet, pools)
        users = {name for pool in pools for name in fleet.tenants_of.get(pool, {})} & fleet.tenants.keys()
        if row is None or bound is None or tenant not in users or len(users) < 2:
            return
        part = weight_share(tenant, dict.fromkeys(users, 1.0), fleet)
        most = max(1, math.floor(bound * part))
        if (row["max_parallel_requests"] or math.inf) <= most:
            return
        why = format_lazy(
            _("The pools have room for {bound} requests at once, and {tenant}'s weight gives it {share} % of that"),
            bound=bound, tenant=tenant, share=round(part * 100),
        )  # fmt: skip
        yield Lever("own_share", _("Bound the tenant's calls side by side"), why,
                    (Edit("tenants", tenant, {"max_parallel_requests": most}),))  # fmt: skip

    def _plan(self, fleet: Fleet, tenant: str, multiplier: float, begun: float) -> Lever:
        a_second = begun / fleet.window_seconds
        why = format_lazy(
            _("{sessions} sessions a second × {calls} calls = {requests} requests a second"),
            sessions=f"{a_second:.2f}", calls=f"{multiplier:.1f}", requests=f"{a_second * multiplier:.2f}",
        )  # fmt: skip
        advice = format_lazy(
            _("On the page Planner multiply {tenant}'s users by {calls}, and take lengths as measured: those are of "
              "calls already. Calls that need no large model (rewriting a query, choosing a tool) can go to a small "
              "one."),
            tenant=tenant, calls=f"{multiplier:.1f}",
        )  # fmt: skip
        return Lever("plan_by_calls", _("Plan by model calls"), why, advice=advice)


def _sharing(readings: Readings, fleet: Fleet) -> dict[str, set[str]]:
    """Pool → other pools with an engine on one of its GPUs, as far as agents tell whose processes these hold."""
    on_gpu: dict[tuple[str, str], set[str]] = {}
    for node, uuid, engine in readings.by("gpus", "node", "UUID", "engine"):
        pool = str(fleet.engines.get(engine, {}).get("pool", ""))
        if pool in fleet.pools:
            on_gpu.setdefault((node, uuid), set()).add(pool)
    found: dict[str, set[str]] = {}
    for pools in on_gpu.values():
        for pool in pools:
            found.setdefault(pool, set()).update(pools - {pool})
    return found


def _concurrency(fleet: Fleet, pools: Iterable[str]) -> int | None:
    """Requests that these pools may have at their engines at once: as set, else as their KV cache has room for."""
    total = 0
    for pool in set(pools):
        facts = fleet.pools[pool]
        budget = carried(facts, fleet)
        most = facts.row["max_concurrency"] or (None if budget is None else budget.together)
        if most is None:
            return None
        total += int(most)
    return total or None


def _calls_expr(fleet: Fleet, tenant: str) -> str:
    window = fleet.window_seconds
    calls = of("headworks_gateway_session_requests_total", window, tenant=tenant)
    return f"sum(increase({calls})) / sum(increase({of('headworks_gateway_sessions_total', window, tenant=tenant)}))"
