"""Row 1: the KV cache is full, and requests wait in the engine for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql
from controlplane.diagnosis.detectors.capacity import FILLED_PERMILLE, Carried, carried, fitting_cap
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.gpus_of import has_fp8
from controlplane.diagnosis.detectors.kv_pressure import PRESSURE_QUERIES, WAITING_MIN, Full, exhausted
from controlplane.diagnosis.detectors.preemption_thrash import why_concurrency
from controlplane.diagnosis.detectors.restarting import desired, is_vllm

# Reservations of gateways explain what is used where they are at least so much of it.
_EXPLAINED = 0.9
_KV_DTYPE, _FP8 = "kv-cache-dtype", "fp8"


class KvExhausted(Detector):
    """KV use above 95 % with requests that wait, or no room for a usual prompt while some wait in the engine.

    A queue at the gateway beside a cache that is as full as it may be (kv_admit_permille) is what admission is for, and
    no finding. Preemption thrash (row 2) is told by its preemptions, and goes before. An engine with a queue and room
    in its cache lacks something else.
    """

    number = 1
    name = "kv_exhausted"
    title = _("KV cache exhausted")
    explanation = _(
        "Keys and values of every token that is alive lie in the GPU's memory. How many requests can run is bound by "
        "that, not by arithmetic: with the KV cache full, what is admitted beyond it waits inside the engine, where "
        "nobody can sort, shed or send it elsewhere. Admission must know the budget: capacity by context length."
    )
    queries: ClassVar = {
        **PRESSURE_QUERIES,
        "running": promql.typical("headworks_engine_requests_running", "pool"),
        "engine_wait": promql.mean("headworks_engine_queue_seconds", "pool"),
        "waiting_trend": "sum by (pool) (deriv(headworks_engine_requests_waiting[$window]))",
        "reserved": promql.typical("headworks_gateway_kv_reserved_tokens", "pool"),
        "others": promql.typical("headworks_gateway_kv_others_tokens", "pool", across="max"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, full in exhausted(readings, fleet).items():
            if pool in fleet.pools:
                yield self._finding(pool, full, readings, fleet)

    def _finding(self, pool: str, full: Full, readings: Readings, fleet: Fleet) -> Finding:
        facts, budget = fleet.pools[pool], carried(fleet.pools[pool], fleet)
        wait, trend = readings.by_pool("engine_wait").get(pool), readings.by_pool("waiting_trend").get(pool)
        signals = [600, 400 if full.waiting + full.queue >= 2 * WAITING_MIN else 200]
        if wait is not None and wait >= 1.0:
            signals.append(400)
        if trend is not None and trend > 0:
            signals.append(200)
        evidence = [
            Evidence("kv_use", full.use, "ratio", full.limit, self.queries["kv_use"]),
            Evidence("waiting_in_engines", full.waiting, "requests", WAITING_MIN, self.queries["waiting"]),
            Evidence("queue", full.queue, "requests", WAITING_MIN, self.queries["queue"]),
        ]
        if wait is not None:
            evidence.append(Evidence("engine_wait", wait, "seconds", None, self.queries["engine_wait"]))
        if budget is not None:
            evidence += [
                Evidence("kv_capacity", budget.capacity_tokens, "tokens"),
                Evidence("context_p95", budget.context_tokens, "tokens"),
                Evidence("sequences_that_fit", budget.together, "count"),
            ]
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _("{pool}: the KV cache is {use:.0%} full, and {waiting:.0f} requests wait for it"),
                pool=pool, use=full.use, waiting=full.waiting + full.queue,
            ),
            confidence_permille=combined(*signals),
            evidence=tuple(evidence),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(self._levers(facts, full, readings, fleet, budget)),
        )  # fmt: skip

    def _levers(
        self, facts: PoolFacts, full: Full, readings: Readings, fleet: Fleet, budget: Carried | None
    ) -> Iterator[Lever]:
        pool = facts.row["name"]
        capacity, reserved = facts.kv_capacity_tokens or 0, readings.by_pool("reserved").get(pool, 0.0)
        running = readings.by_pool("running").get(pool, 0.0)
        if reserved >= _EXPLAINED * full.use * capacity > 0 and running >= 1:
            yield from _admit(facts, full, running)
        cap = fitting_cap(facts.row["max_concurrency"], running, full.use, budget)
        if cap is not None:
            yield Lever(
                key="concurrency",
                title=format_lazy(_("At most {cap} requests at the engines of {pool}"), cap=cap, pool=pool),
                why=why_concurrency(cap, running, budget),
                edits=(Edit("pools", pool, {"max_concurrency": cap}),),
            )
        if readings.by_pool("others").get(pool, 0.0) > full.use * capacity / 2 > 0:
            yield Lever(
                key="around_the_gateway",
                title=format_lazy(_("Lead all clients of {pool} through the gateways"), pool=pool),
                why=_("More than half of the KV cache is held by requests that no gateway has sent."),
                advice=_("Take the engines' addresses from clients that ask them directly: nothing admits those."),
            )
        yield from _fp8(facts, fleet)


def _admit(facts: PoolFacts, full: Full, running: float) -> Iterator[Lever]:
    """What is used has been reserved: as much less of it as waits, and as the cache is too full."""
    now, pool = int(facts.row["kv_admit_permille"]), facts.row["name"]
    fits = running / (running + full.waiting) * FILLED_PERMILLE / 1000 / full.use
    then = min(FILLED_PERMILLE, int(now * fits), now - 1)
    if then < 1:
        return
    yield Lever(
        key="kv_admit",
        title=format_lazy(
            _("Admit {then} ‰ of the KV cache of {pool} instead of {now} ‰"), then=then, pool=pool, now=now
        ),
        why=format_lazy(
            _(
                "Requests may reserve {now} ‰ of the KV cache. Of those admitted {running:.0f} run, fill it to "
                "{use:.0%}, and {waiting:.0f} wait for it; {then} ‰ are as many as run in nine tenths of it."
            ),
            now=now, running=running, use=full.use, waiting=full.waiting, then=then,
        ),
        edits=(Edit("pools", pool, {"kv_admit_permille": then}),),
    )  # fmt: skip


def _fp8(facts: PoolFacts, fleet: Fleet) -> Iterator[Lever]:
    now = str(facts.row["engine_arguments"].get(_KV_DTYPE, ""))
    edits = desired(facts, {_KV_DTYPE: _FP8})
    if now.startswith(_FP8) or not edits or not is_vllm(facts, fleet) or not has_fp8(facts, fleet):
        return
    yield Lever(
        key="fp8_kv",
        title=format_lazy(_("Keep the KV cache of {pool} in FP8"), pool=facts.row["name"]),
        why=_("Half the bytes a token: about twice as many tokens of context in the same memory."),
        edits=edits,
        advice=_(
            "It may cost accuracy on long contexts: measure it with your own evaluation first. Engines take it at "
            "their next start: roll it out engine by engine."
        ),
    )
