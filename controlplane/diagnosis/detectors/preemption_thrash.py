"""Row 2: requests that are put back for lack of KV cache, and computed again from their beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql
from controlplane.diagnosis.detectors.capacity import FILLED_PERMILLE, Carried, carried, fitting_cap
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.kv_pressure import (
    LOOKS_SHARE,
    PREEMPTED_SHARE,
    PRESSURE_QUERIES,
    Thrashing,
    thrashing,
)
from controlplane.diagnosis.detectors.measured import engines_of
from controlplane.diagnosis.detectors.promises import tpot_seconds
from controlplane.diagnosis.detectors.restarting import ROLL, desired, is_vllm, started_with
from policy.capacity import growing_within

_TPOT = "headworks_gateway_tpot_seconds"
# By so much TPOT has risen, when it has.
_RISEN = 1.25
# A cache that preempts is full, whatever it was when it was looked at.
_FULL = 0.9


class PreemptionThrash(Detector):
    """Preemptions in at least half of the looks, and of a tenth of the requests that end, or half beside a queue.

    Beside it KV exhaustion (row 1) has a full cache and a queue in the engine, but finishes most of what it begins. A
    prefill that stalls others (row 4) makes TPOT worse as well, and preempts nobody.
    """

    number = 2
    name = "preemption_thrash"
    title = _("Preemption thrash")
    explanation = _(
        "More sequences run than the KV cache holds when they have grown. The engine puts some back, and computes them "
        "again from their beginning when their turn comes: prefill that delays the decoding of the others, which so "
        "hold their cache for longer. The GPU is busy with work that it has done before."
    )
    queries: ClassVar = {
        **PRESSURE_QUERIES,
        "tpot_p95": promql.quantile(0.95, _TPOT, "pool"),
        "tpot_p95_before": promql.quantile(0.95, _TPOT, "pool", offset=promql.BEFORE),
        "running": promql.typical("headworks_engine_requests_running", "pool"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, seen in thrashing(readings, fleet).items():
            if pool in fleet.pools:
                yield self._finding(pool, seen, readings, fleet)

    def _finding(self, pool: str, seen: Thrashing, readings: Readings, fleet: Fleet) -> Finding:
        facts = fleet.pools[pool]
        tpot, before = readings.by_pool("tpot_p95").get(pool), readings.by_pool("tpot_p95_before").get(pool)
        limit, use = tpot_seconds(facts.row), _fullest(pool, readings)
        signals = [700 if seen.share is None or seen.share >= 2 * PREEMPTED_SHARE else 600]
        if tpot is not None and (tpot > limit or (before is not None and tpot >= _RISEN * before)):
            signals.append(500)
        if use is not None and use >= 0.9:
            signals.append(400)
        evidence = [
            Evidence("preemptions", seen.per_second, "per_second", 0.0, self.queries["preempted"]),
            Evidence("looks_with_preemptions", seen.looks, "ratio", LOOKS_SHARE, self.queries["preempted_looks"]),
        ]
        if seen.share is not None:
            evidence.append(Evidence("preemptions_a_request", seen.share, "ratio", PREEMPTED_SHARE))
        if tpot is not None:
            evidence.append(Evidence("tpot_p95", tpot, "seconds", limit, self.queries["tpot_p95"]))
        if use is not None:
            evidence.append(Evidence("kv_use", use, "ratio", None, self.queries["kv_use"]))
        budget = carried(facts, fleet)
        if budget is not None:
            evidence.append(Evidence("sequences_that_fit", budget.together, "count"))
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _("{pool}: {rate:.2f} preemptions a second, in {looks:.0%} of all looks"),
                pool=pool, rate=seen.per_second, looks=seen.looks,
            ),
            confidence_permille=combined(*signals),
            evidence=tuple(evidence),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(_levers(facts, fleet, readings.by_pool("running").get(pool, 0.0), use or 1.0, budget)),
        )  # fmt: skip


def _fullest(pool: str, readings: Readings) -> float | None:
    return max((use for (of, _), use in readings.by("kv_use", "pool", "engine").items() if of == pool), default=None)


def _levers(facts: PoolFacts, fleet: Fleet, running: float, use: float, budget: Carried | None) -> Iterator[Lever]:
    pool = facts.row["name"]
    # Those that run fill the caches, whatever the engines say that these hold; those that were put back hold nothing.
    engines = max(1, len(engines_of(facts, fleet)))
    filling = max(1.0, running / max(_FULL, use))
    within = engines * growing_within(filling / engines, FILLED_PERMILLE)
    cap = fitting_cap(facts.row["max_concurrency"], within, FILLED_PERMILLE / 1000, budget)
    if cap is not None:
        yield Lever(
            key="concurrency",
            title=format_lazy(_("At most {cap} requests at the engines of {pool}"), cap=cap, pool=pool),
            why=_why(cap, filling, budget),
            edits=(Edit("pools", pool, {"max_concurrency": cap}),),
        )
    if budget is not None and is_vllm(facts, fleet):
        yield from _restart(facts, fleet, budget, min(budget.of_each, max(1, (cap or 1) // len(budget.sequences))))


def _restart(facts: PoolFacts, fleet: Fleet, budget: Carried, sequences: int) -> Iterator[Lever]:
    """The engines' part of the same number, which bounds those that no gateway sends, too."""
    started = started_with(facts, fleet, "max-num-seqs")
    edits = desired(facts, _arguments(facts, fleet, sequences))
    if (started is not None and started <= sequences) or not edits:
        return
    yield Lever(
        key="max_num_seqs",
        title=format_lazy(
            _("Start the engines of {pool} with max-num-seqs {n}"), pool=facts.row["name"], n=sequences
        ),
        why=format_lazy(
            _(
                "Nine tenths of {tokens} tokens of KV cache carry {fit} sequences an engine with 95 % probability, by "
                "the measured lengths (95 % of contexts have {context} tokens at most). Of those that run now {n} an "
                "engine fit."
            ),
            tokens=budget.capacity_tokens, fit=budget.of_each, context=budget.context_tokens, n=sequences,
        ),
        edits=edits,
        advice=ROLL,
    )  # fmt: skip


def _arguments(facts: PoolFacts, fleet: Fleet, sequences: int) -> dict[str, str | int | bool]:
    """vLLM refuses a step with fewer tokens than sequences."""
    tokens = started_with(facts, fleet, "max-num-batched-tokens")
    more = {} if tokens is None or tokens >= sequences else {"max-num-batched-tokens": sequences}
    return {"max-num-seqs": sequences, **more}


def _why(cap: int, filling: float, budget: Carried | None) -> Promise:
    if budget is not None and budget.together <= cap:
        return why_concurrency(cap, filling, budget)
    return format_lazy(
        _(
            "{running:.0f} sequences fill the KV cache, each at its own stage of growth. {cap} stay within nine tenths "
            "of it in 95 of 100 moments. What is refused at the door costs no GPU time; what is preempted has."
        ),
        running=filling, cap=cap,
    )  # fmt: skip


def why_concurrency(cap: int, running: float, budget: Carried | None) -> Promise:
    """What a cap of a pool's concurrency was derived from."""
    if budget is None:
        return format_lazy(
            _("{running:.0f} sequences fill the KV cache; {cap} fill nine tenths of it."),
            running=running, cap=cap,
        )  # fmt: skip
    return format_lazy(
        _(
            "{running:.0f} sequences fill the KV cache. By the measured lengths {fit} sequences (95 % of contexts have "
            "{context} tokens at most) fit nine tenths of its {tokens} tokens. What is refused at the door costs no "
            "GPU time; what is preempted has."
        ),
        running=running, fit=budget.together, context=budget.context_tokens, tokens=budget.capacity_tokens,
    )  # fmt: skip
