"""Row 10: requests that leave the length of their answer open, and so reserve far more than answers take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql, refusals
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.measured import REQUESTS_MIN, model_of
from policy.kv import admissible_tokens
from wire.canonical import Document

# Where fewer leave it open, what they reserve is not what fills the cache; unless it is half of all that is reserved
# for answers, by what the others usually ask for.
_OPEN_SHARE, _OPEN_RESERVED = 0.3, 0.5
# The default is more than what 95 % of answers need by at least a quarter: less is no gain.
_TOO_MUCH = 1.25
# An answer that is cut off at the default says only that it is not shorter.
_CUT_OFF = 0.9
# Of what may be reserved so much is: the next request waits for a reservation.
_RESERVED_RATIO = 0.8
_WAITING_MIN = 1.0
# Seed 1, section 10: the server's own default where a client asks for none.
_SEED_DEFAULT = 512
# Where no lengths are known yet: of answers that are spread about exponentially 95 % have three means (ln 20) at most.
_MEANS_OF_P95 = 3.0
OPEN_QUERIES = {
    "open": refusals.by_tenant("headworks_gateway_requests_without_max_tokens_total"),
    "all_requests": refusals.by_tenant(refusals.REQUESTS),
    "queue": promql.typical("headworks_gateway_queue_length", "pool"),
    "reserved": promql.typical("headworks_gateway_kv_reserved_tokens", "pool"),
    "output_rate": promql.per_second("headworks_gateway_generation_tokens_total", "pool"),
    "answer_rate": promql.per_second(f'{refusals.REQUESTS}{{outcome="ok"}}', "pool"),
}


class Open(NamedTuple):
    """`default`: what is reserved for an answer of open length; `needed`: what 95 % of answers do not exceed.

    `share`: of the requests; `reserving`: of what is reserved for answers. `reserved`: of what may be reserved in the
    pool; None where that is not known.
    """

    share: float
    reserving: float
    default: int
    needed: int
    queue: float
    reserved: float | None


def open_ended(readings: Readings, fleet: Fleet) -> dict[str, Open]:
    """Pools that are short of KV cache or places while many requests reserve more than they need."""
    left_open, asked = readings.by_pool("open"), readings.by_pool("all_requests")
    found = {}
    for pool, requests in asked.items():
        facts = fleet.pools.get(pool)
        model = None if facts is None else model_of(facts, fleet)
        if facts is None or model is None or requests < refusals.REQUESTS_MIN:
            continue
        seen = _seen(facts, model, left_open.get(pool, 0.0) / requests, readings, fleet)
        contended = seen is not None and (seen.queue >= _WAITING_MIN or (seen.reserved or 0.0) >= _RESERVED_RATIO)
        if seen is None or not contended or seen.default <= _TOO_MUCH * seen.needed:
            continue
        if seen.share >= _OPEN_SHARE or seen.reserving >= _OPEN_RESERVED:
            found[pool] = seen
    return found


def _seen(facts: PoolFacts, model: Document, share: float, readings: Readings, fleet: Fleet) -> Open | None:
    default, pool = int(model["default_max_tokens"]), facts.row["name"]
    needed = _needed(950, model, fleet) or _by_mean(pool, readings)
    if needed is None:
        return None
    if needed >= _CUT_OFF * default:
        needed = min(needed, _SEED_DEFAULT)
    admissible = admissible_tokens(facts.kv_capacity_tokens or 0, int(facts.row["kv_admit_permille"]))
    reserved = readings.by_pool("reserved").get(pool)
    ratio = None if reserved is None or not admissible else reserved / admissible
    usual = needed if facts.lengths is None else facts.lengths.max_tokens.get(500, needed)
    by_open, by_others = share * default, max(0.0, 1 - share) * usual
    reserving = by_open / (by_open + by_others) if by_open > 0 else 0.0
    return Open(share, reserving, default, needed, readings.by_pool("queue").get(pool, 0.0), ratio)


def _needed(permille: int, model: Document, fleet: Fleet) -> int | None:
    """Tokens of the answers of all pools of the model, of the pool with the longest."""
    known = [
        facts.lengths.output_tokens[permille]
        for facts in fleet.pools.values()
        if facts.row["model"] == model["name"]
        and facts.lengths is not None
        and facts.lengths.counted >= REQUESTS_MIN
        and permille in facts.lengths.output_tokens
    ]
    return max(1, *known) if known else None


def _by_mean(pool: str, readings: Readings) -> int | None:
    tokens, answers = readings.by_pool("output_rate").get(pool, 0.0), readings.by_pool("answer_rate").get(pool, 0.0)
    return max(1, round(_MEANS_OF_P95 * tokens / answers)) if tokens > 0 and answers > 0 else None


class OpenEndedOutput(Detector):
    """Many requests leave max_tokens out, the default is above what answers need, and the pool is contended.

    Many are three in ten, or as many as reserve half of what is reserved for answers. Without waiting or full
    reservations it costs nobody anything, and is no finding. A cache that is really full, and not only reserved, is KV
    exhaustion (row 1).
    """

    number = 10
    name = "open_ended_output"
    title = _("Open-ended output")
    explanation = _(
        "How long an answer gets is not known before. Where a client sends no max_tokens the model's default is "
        "reserved, and may be generated: one short question can hold thousands of tokens of KV cache. Mostly the field "
        "was just left empty. A default that fits what is measured, and a ceiling for each tenant, give the room back."
    )
    queries: ClassVar = {**OPEN_QUERIES, "kv_use": promql.typical("headworks_engine_kv_cache_usage_ratio", "pool",
                                                                  across="avg")}  # fmt: skip

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, seen in open_ended(readings, fleet).items():
            yield self._finding(fleet.pools[pool], seen, readings, fleet)

    def _finding(self, facts: PoolFacts, seen: Open, readings: Readings, fleet: Fleet) -> Finding:
        pool, use = facts.row["name"], readings.by_pool("kv_use").get(facts.row["name"])
        signals = [600 if seen.share >= 2 * _OPEN_SHARE else 450, 400 if seen.default >= 4 * seen.needed else 250]
        evidence = [
            Evidence("open_requests", seen.share, "ratio", _OPEN_SHARE, self.queries["open"]),
            Evidence("reserved_by_open", seen.reserving, "ratio", _OPEN_RESERVED),
            Evidence("default_max_tokens", seen.default, "tokens", _TOO_MUCH * seen.needed),
            Evidence("output_p95", seen.needed, "tokens"),
            Evidence("queue", seen.queue, "requests", _WAITING_MIN, self.queries["queue"]),
        ]
        if seen.reserved is not None:
            evidence.append(Evidence("kv_reserved", seen.reserved, "ratio", _RESERVED_RATIO, self.queries["reserved"]))
            if use is not None and use <= seen.reserved / 2:
                # Reserved for nothing.
                signals.append(500)
        if use is not None:
            evidence.append(Evidence("kv_use", use, "ratio", None, self.queries["kv_use"]))
        tenants = _who(pool, readings, fleet)
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _(
                    "{pool}: {share:.0%} of the requests ask for no max_tokens, and reserve {default} tokens where "
                    "95 % of the answers need {n}"
                ),
                pool=pool, share=seen.share, default=seen.default, n=seen.needed,
            ),
            confidence_permille=combined(*signals),
            evidence=tuple(evidence),
            pools=(pool,),
            tenants=tenants,
            levers=tuple(_levers(facts, seen, tenants, fleet)),
        )  # fmt: skip


def _who(pool: str, readings: Readings, fleet: Fleet) -> tuple[str, ...]:
    """Those of whose own requests so many are open, most of them first."""
    asked = readings.by("all_requests", "pool", "tenant")
    found = {
        tenant: count
        for (of, tenant), count in readings.by("open", "pool", "tenant").items()
        if of == pool and tenant in fleet.tenants and count >= _OPEN_SHARE * max(1.0, asked.get((of, tenant), 0.0))
    }
    return tuple(sorted(found, key=lambda tenant: (-found[tenant], tenant)))


def _levers(facts: PoolFacts, seen: Open, tenants: Iterable[str], fleet: Fleet) -> Iterator[Lever]:
    model = fleet.models[facts.row["model"]]
    yield Lever(
        key="default_max_tokens",
        title=format_lazy(_("{model}: {n} tokens where no max_tokens is asked"), model=model["name"], n=seen.needed),
        why=format_lazy(
            _("95 % of the measured answers are not longer; {default} are reserved for each now."),
            default=seen.default,
        ),
        edits=(Edit("models", model["name"], {"default_max_tokens": seen.needed}),),
    )
    longest = _needed(990, model, fleet)
    if longest is None:
        return
    ceiling = max(longest, seen.needed)
    capped = [
        Edit("tenants", tenant, {"max_tokens_cap": ceiling})
        for tenant in tenants
        if (fleet.tenants[tenant]["max_tokens_cap"] or ceiling + 1) > ceiling
    ]
    if capped:
        yield Lever(
            key="max_tokens_cap",
            title=format_lazy(
                _("At most {n} tokens an answer for {tenants}"), n=ceiling, tenants=", ".join(e.key for e in capped)
            ),
            why=_("99 % of the measured answers are not longer."),
            edits=tuple(capped),
        )
    if ceiling < model["max_tokens"] // 2:
        yield Lever(
            key="max_tokens",
            title=format_lazy(_("{model}: at most {n} tokens an answer"), model=model["name"], n=ceiling),
            why=format_lazy(
                _("99 % of the measured answers are not longer; {now} may be asked for now."), now=model["max_tokens"]
            ),
            edits=(Edit("models", model["name"], {"max_tokens": ceiling, "default_max_tokens": seen.needed}),),
        )
