"""Row 4: the prefill of long prompts stops the streams of others; a prefix cache that could spare it is missed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql, refusals
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.gpus_of import kinds_of
from controlplane.diagnosis.detectors.kv_pressure import PRESSURE_QUERIES, thrashing
from controlplane.diagnosis.detectors.promises import tpot_seconds
from controlplane.diagnosis.detectors.restarting import ROLL, desired, is_vllm, started_with
from controlplane.diagnosis.detectors.size_route import route_from, size_route
from policy.planning.start import BATCHED_TOKENS_LARGE, batched_tokens

_GAPS = "headworks_engine_inter_token_latency_seconds"
_STEPS = "vllm:iteration_tokens_total"
# The slowest gaps are many usual ones long: all slow alike is another cause, as a full batch or a slow GPU.
_GAP_FACTOR = 5.0
# A gap of four promised ones is seen as a stop.
_GAP_PROMISES = 4.0
# Steps that hold a prompt are many times as large as those that only decode.
_STEP_FACTOR = 4.0
# Gaps that were measured: a hundredth of fewer says nothing.
_GAPS_MIN = 100.0
STALL_QUERIES = {
    "gap_p99": promql.quantile(0.99, _GAPS, "pool"),
    "gap_p50": promql.quantile(0.5, _GAPS, "pool"),
    "gaps": promql.counted(f"{_GAPS}_count", "pool"),
    "step_p99": promql.quantile(0.99, _STEPS, "pool"),
    "step_p50": promql.quantile(0.5, _STEPS, "pool"),
    **PRESSURE_QUERIES,
}
# Of a prefix cache: what it finds at least where prompts begin alike, and the share of prompts that defeat it.
_HIT_RATIO, _HOSTILE_SHARE = 0.2, 0.3


class Stall(NamedTuple):
    """Gaps between a stream's tokens; tokens of the largest steps, None where engines do not tell."""

    gap_p99: float
    gap_p50: float
    step_p99: float | None


class Missed(NamedTuple):
    """`hits`: of the prompt tokens that were looked up. `hostile`: of the prompts."""

    hits: float
    hostile: float


def stalls(readings: Readings, fleet: Fleet) -> dict[str, Stall]:
    """Pools in which a few steps, of many tokens, take many times as long as the others."""
    slow, usual, gaps = (readings.by_pool(name) for name in ("gap_p99", "gap_p50", "gaps"))
    large, small = readings.by_pool("step_p99"), readings.by_pool("step_p50")
    thrash, found = thrashing(readings, fleet), {}
    for pool, gap in slow.items():
        if pool not in fleet.pools or pool in thrash or gaps.get(pool, 0.0) < _GAPS_MIN:
            continue
        decodes_alone = pool in large and large[pool] < _STEP_FACTOR * small.get(pool, 0.0)
        limit = _GAP_PROMISES * tpot_seconds(fleet.pools[pool].row)
        if gap >= _GAP_FACTOR * usual.get(pool, 0.0) and gap >= limit and not decodes_alone:
            found[pool] = Stall(gap, usual.get(pool, 0.0), large.get(pool))
    return found


class PrefillStall(Detector):
    """One gap in a hundred is at least five usual ones and four promised ones long, and such steps are full of prompt.

    Where all gaps are long the batch is too large or the GPU slow (row 20), and nothing stalls. Preemption (row 2)
    makes prefill, too, and goes before. Head-of-line blocking (row 5) is of those that wait for their first token.
    """

    number = 4
    name = "prefill_stall"
    title = _("Prefill stalls decode")
    explanation = _(
        "Reading a prompt is bound by arithmetic, writing by memory bandwidth, and both share the engine's steps. A "
        "long prompt fills a step, and all streams stand still for as long. The engine cuts prompts into steps of "
        "max_num_batched_tokens: small steps keep streams steady, large ones bring the first token sooner. A prefix "
        "cache spares reading what prompts have in common, from their first token on: what varies belongs at the end."
    )
    queries: ClassVar = {
        **STALL_QUERIES,
        "tpot_p95": promql.quantile(0.95, "headworks_gateway_tpot_seconds", "pool"),
        "looked_up": promql.counted("headworks_engine_prefix_cache_queries_tokens_total", "pool"),
        "hits": promql.counted("headworks_engine_prefix_cache_hits_tokens_total", "pool"),
        "hostile": promql.counted("headworks_gateway_cache_hostile_prompts_total", "pool"),
        "asked": promql.counted(refusals.REQUESTS, "pool"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        stalling, missing = stalls(readings, fleet), _missed(readings, fleet)
        for pool in sorted(stalling.keys() | missing.keys()):
            yield self._finding(fleet.pools[pool], stalling.get(pool), missing.get(pool), readings, fleet)

    def _finding(
        self, facts: PoolFacts, stall: Stall | None, missed: Missed | None, readings: Readings, fleet: Fleet
    ) -> Finding:
        pool = facts.row["name"]
        signals, evidence, summary = list[int](), list[Evidence](), list[object]()
        if stall is not None:
            said, of_stall = self._stalled(facts, stall, readings)
            signals += said
            evidence += of_stall
            summary.append(
                format_lazy(
                    _("{pool}: one gap between tokens in a hundred takes {slow:.2f} s, the usual one {usual:.3f} s"),
                    pool=pool, slow=stall.gap_p99, usual=stall.gap_p50,
                )
            )  # fmt: skip
        if missed is not None:
            signals.append(700 if missed.hostile >= 2 * _HOSTILE_SHARE else 600)
            evidence += [
                Evidence("prefix_hits", missed.hits, "ratio", _HIT_RATIO, self.queries["hits"]),
                Evidence("new_heads", missed.hostile, "ratio", _HOSTILE_SHARE, self.queries["hostile"]),
            ]
            summary.append(
                format_lazy(
                    _("{pool}: {hostile:.0%} of the prompts begin with something new before text that repeats"),
                    pool=pool, hostile=missed.hostile,
                )
            )  # fmt: skip
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy("; ".join(["{}"] * len(summary)), *summary),
            confidence_permille=combined(*signals),
            evidence=tuple(evidence),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(_levers(facts, stall, missed, fleet)),
        )

    def _stalled(self, facts: PoolFacts, stall: Stall, readings: Readings) -> tuple[list[int], list[Evidence]]:
        limit = tpot_seconds(facts.row)
        signals = [600 if stall.gap_p99 >= 2 * _GAP_FACTOR * stall.gap_p50 else 500]
        evidence = [
            Evidence("gap_p99", stall.gap_p99, "seconds", _GAP_PROMISES * limit, self.queries["gap_p99"]),
            Evidence("gap_p50", stall.gap_p50, "seconds", None, self.queries["gap_p50"]),
        ]
        if stall.step_p99 is not None:
            signals.append(500)
            evidence.append(Evidence("step_tokens_p99", stall.step_p99, "tokens", None, self.queries["step_p99"]))
        tpot = readings.by_pool("tpot_p95").get(facts.row["name"])
        if tpot is not None:
            signals.append(400 if tpot > limit else 0)
            evidence.append(Evidence("tpot_p95", tpot, "seconds", limit, self.queries["tpot_p95"]))
        if facts.lengths is not None and (longest := facts.lengths.prompt_tokens.get(990)) is not None:
            evidence.append(Evidence("prompt_p99", longest, "tokens"))
        return signals, evidence


def _missed(readings: Readings, fleet: Fleet) -> dict[str, Missed]:
    """Pools whose prefix cache finds little, and whose prompts are why. Engines without such a cache say nothing."""
    hits, hostile, asked = (readings.by_pool(name) for name in ("hits", "hostile", "asked"))
    found = {}
    for pool, tokens in readings.by_pool("looked_up").items():
        requests = asked.get(pool, 0.0)
        if pool not in fleet.pools or tokens < 1 or requests < refusals.REQUESTS_MIN:
            continue
        missed = Missed(hits.get(pool, 0.0) / tokens, hostile.get(pool, 0.0) / requests)
        if missed.hits < _HIT_RATIO and missed.hostile >= _HOSTILE_SHARE:
            found[pool] = missed
    return found


def _levers(facts: PoolFacts, stall: Stall | None, missed: Missed | None, fleet: Fleet) -> Iterator[Lever]:
    if stall is not None:
        route = _long_route(facts, stall, fleet)
        # Where long prompts have somewhere to go they go at once, and no engine is started again for it.
        if route is not None and route.edits:
            yield route
        yield from _smaller_steps(facts, stall, fleet)
        if route is not None and not route.edits:
            yield route
    if missed is not None:
        yield Lever(
            key="prompt_order",
            title=_("Put what varies at the end of prompts"),
            why=_("Engines match prefixes from the first token on; a name, a date or an id there makes all new."),
            advice=_("Let system prompt and templates begin alike; add user, time and documents after them."),
        )


def _long_route(facts: PoolFacts, stall: Stall, fleet: Fleet) -> Lever | None:
    """For prompts that stop streams for as long as is seen; by measured lengths where their speed is not known."""
    if stall.step_p99 is None:
        return size_route(facts, fleet)
    seconds, speed = _GAP_PROMISES * tpot_seconds(facts.row), stall.step_p99 / stall.gap_p99
    why = format_lazy(
        _(
            "At the {speed:.0f} tokens a second of the largest steps more of them are read for longer than "
            "{seconds:g} s."
        ),
        speed=speed, seconds=seconds,
    )  # fmt: skip
    return route_from(facts, fleet, max(1, int(speed * seconds)), why)


def _smaller_steps(facts: PoolFacts, stall: Stall, fleet: Fleet) -> Iterator[Lever]:
    """So many tokens as a step reads in the time that a token is promised in, at the speed of the largest steps."""
    now = started_with(facts, fleet, "max-num-batched-tokens")
    largest = min((each for each in (stall.step_p99, now) if each is not None), default=None)
    kinds = kinds_of(facts, fleet)
    if largest is None or not kinds or not is_vllm(facts, fleet):
        return
    tpot_ms, speed = round(1000 * tpot_seconds(facts.row)), largest / stall.gap_p99
    tokens = min(batched_tokens(gpu, tpot_ms=tpot_ms, prefill_tokens_per_second=speed).value for gpu in kinds)
    tokens = max(tokens, started_with(facts, fleet, "max-num-seqs") or 1)
    edits = desired(facts, {"max-num-batched-tokens": tokens})
    if tokens >= (now or BATCHED_TOKENS_LARGE) or not edits:
        return
    yield Lever(
        key="max_num_batched_tokens",
        title=format_lazy(_("Steps of {tokens} tokens at most in {pool}"), tokens=tokens, pool=facts.row["name"]),
        why=format_lazy(
            _(
                "A step of {largest:.0f} tokens takes {slow:.2f} s, {speed:.0f} tokens a second; within the TPOT of "
                "{tpot} ms that is {tokens}. First tokens of long prompts come later."
            ),
            largest=largest, slow=stall.gap_p99, speed=speed, tpot=tpot_ms, tokens=tokens,
        ),
        edits=edits,
        advice=ROLL,
    )  # fmt: skip
