"""Row 12: the same questions, computed again each time; and caches that give the wrong answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.promql import counted
from wire.snapshot import ExactCache, SemanticCache


class RepeatQuestions(Detector):
    """Many prompts of a tenant were asked before within a day, and engines answer them all.

    A retry storm repeats the same body of the same key within a minute, because it failed; it is counted apart
    (`kind="retry"`), and where there are as many of those the finding is lowered. Agents in a loop send longer prompts
    with each turn, which are no duplicates. Where a semantic cache's answers are reported as wrong, the threshold is
    the matter, whatever the hit rate: that is found first.
    """

    number = 12
    name = "repeat_questions"
    title = _("Repeat questions")
    explanation = _(
        "A few questions are asked hundreds of times a day, and each time the large model answers from nothing. Prefix "
        "caching saves the prefill of what repeats, not the decode: that a cache of answers does, exact, then "
        "semantic, and a small model before the large one for what is left. A similarity threshold that is too low "
        "answers other questions than were asked."
    )
    queries: ClassVar = {
        "duplicates": counted('headworks_gateway_repeated_requests_total{kind="duplicate"}', "pool", "tenant"),
        "retries": counted('headworks_gateway_repeated_requests_total{kind="retry"}', "tenant"),
        "requests": counted("headworks_gateway_requests_total", "pool", "tenant"),
        "lookups": counted("headworks_gateway_cache_lookups_total", "tenant"),
        "hits": counted("headworks_gateway_cache_hits_total", "tenant"),
        "semantic_hits": counted('headworks_gateway_cache_hits_total{cache="semantic"}', "tenant"),
        "wrong_hits": counted('headworks_gateway_cache_wrong_hits_total{cache="semantic"}', "tenant"),
    }
    # One in five: less than that spares less than the look-up and the memory cost (docs/caches.md measures both).
    DUPLICATE_SHARE = 0.2
    REQUESTS_LEAST = 30.0
    # Nobody reports them all: one reported in fifty is many.
    WRONG_SHARE = 0.02
    WRONG_LEAST = 2.0
    # By so much of what is left to 1 the threshold rises: 950 → 975.
    SIMILARITY_STEP = 0.5
    SIMILARITY_MOST_PERMILLE = 995
    # A model that takes at most so much KV cache a token is a small one beside the other.
    SMALL_SHARE = 0.5
    ENTRIES_LEAST, ENTRIES_MOST = 1_000, 100_000

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        wrong = {tenant: found for found in self._wrong(readings, fleet) for tenant in found.tenants}
        yield from wrong.values()
        yield from (found for found in self._repeated(readings, fleet) if found.tenants[0] not in wrong)

    # Wrong answers

    def _wrong(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        hits = named(readings.by("semantic_hits", "tenant"))
        for tenant, reports in sorted(named(readings.by("wrong_hits", "tenant")).items()):
            wrong = share(reports, hits.get(tenant, 0.0))
            if reports < self.WRONG_LEAST or wrong < self.WRONG_SHARE:
                continue
            evidence = (
                Evidence("wrong_hits", wrong, "ratio", self.WRONG_SHARE, _wrong_expr(fleet, tenant)),
                Evidence("reports", reports, "count", self.WRONG_LEAST),
            )
            said = format_lazy(
                _("{share} % of the semantic cache's answers to {tenant} were reported as wrong"),
                share=f"{min(1.0, wrong) * 100:.1f}", tenant=tenant,
            )  # fmt: skip
            confidence = combined(700, *[600] * (wrong >= 2 * self.WRONG_SHARE))
            levers = self._raised(fleet, tenant, said)
            yield Finding(f"tenant/{tenant}", said, confidence, evidence, (), (tenant,), levers)

    def _raised(self, fleet: Fleet, tenant: str, why: Any) -> tuple[Lever, ...]:
        policy = _policy_of(fleet, tenant, tuple(fleet.pools))
        semantic = (policy or {}).get("semantic")
        if policy is None or not semantic:
            return (Lever("raise_similarity", _("Raise the similarity threshold"), why,
                          advice=_("Find the cache policy that answered, of the model if the tenant names none, and "
                                   "raise its similarity_permille, or clear what was approved wrongly.")),)  # fmt: skip
        now = semantic["similarity_permille"]
        higher = min(self.SIMILARITY_MOST_PERMILLE, now + math.ceil((1000 - now) * self.SIMILARITY_STEP))
        if higher <= now:
            edit = Edit("cache-policies", policy["name"], {"semantic": None})
            return (Lever("drop_semantic", _("Turn the semantic cache off"), why, (edit,)),)
        # REST replaces the group as a whole.
        edit = Edit("cache-policies", policy["name"], {"semantic": {**semantic, "similarity_permille": higher}})
        says = format_lazy(_("{why}; the threshold goes from {now} to {higher} ‰"), why=why, now=now, higher=higher)
        return (Lever("raise_similarity", _("Raise the similarity threshold"), says, (edit,)),)

    # Repeats

    def _repeated(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        duplicates, requests = readings.by("duplicates", "pool", "tenant"), readings.by("requests", "pool", "tenant")
        retries = named(readings.by("retries", "tenant"))
        for tenant in sorted({tenant for _pool, tenant in duplicates}):
            if tenant not in fleet.tenants:
                continue
            again = {pool: count for (pool, who), count in duplicates.items() if who == tenant and count > 0}
            asked = sum(requests.get((pool, tenant), 0.0) for pool in again)
            repeated = share(sum(again.values()), asked)
            if asked < self.REQUESTS_LEAST or repeated < self.DUPLICATE_SHARE:
                continue
            confidence = combined(700, *[600] * (repeated >= 2 * self.DUPLICATE_SHARE))
            if retries.get(tenant, 0.0) >= sum(again.values()):
                confidence = lowered(confidence, 500)
            hit_rate = share(named(readings.by("hits", "tenant")).get(tenant, 0.0),
                             named(readings.by("lookups", "tenant")).get(tenant, 0.0))  # fmt: skip
            evidence = (
                Evidence("duplicates", min(1.0, repeated), "ratio", self.DUPLICATE_SHARE, _repeat_expr(fleet, tenant)),
                Evidence("requests", asked, "requests", self.REQUESTS_LEAST),
                Evidence("cache_hit_rate", hit_rate, "ratio"),
            )
            said = format_lazy(
                _("{share} % of what {tenant} asks was asked before within a day, and engines answered it again"),
                share=f"{min(1.0, repeated) * 100:.0f}", tenant=tenant,
            )  # fmt: skip
            pools = tuple(sorted(again, key=lambda pool: (-again[pool], pool)))
            new_a_second = max(0.0, asked - sum(again.values())) / fleet.window_seconds
            levers = (*self._caches(fleet, tenant, pools, new_a_second), *self._cascades(fleet, pools))
            yield Finding(f"tenant/{tenant}", said, confidence, evidence, pools, (tenant,), levers)

    def _caches(self, fleet: Fleet, tenant: str, pools: tuple[str, ...], new_a_second: float) -> Iterator[Lever]:
        ttl_ms = ExactCache().ttl_ms
        lasting = new_a_second * ttl_ms / 1000
        entries = min(self.ENTRIES_MOST, max(self.ENTRIES_LEAST, math.ceil(lasting)))
        why = format_lazy(
            _("{rate} new questions a second, each kept for {minutes} min: room for {entries} answers"),
            rate=f"{new_a_second:.2f}", minutes=ttl_ms // 60_000, entries=entries,
        )  # fmt: skip
        exact = {"ttl_ms": ttl_ms, "max_entries": entries}
        title = _("Keep exact answers")
        policy = _policy_of(fleet, tenant, pools)
        if policy is None:
            name = _policy_name(fleet, tenant)
            edits = (
                Edit("cache-policies", name, {"exact": exact}, create=True),
                Edit("tenants", tenant, {"cache_policy": name}),
            )
            yield Lever("exact_cache", title, why, edits, advice=_CAREFUL)
        elif not policy.get("exact"):
            edit = Edit("cache-policies", policy["name"], {"exact": exact})
            yield Lever("exact_cache", title, why, (edit,), advice=_CAREFUL)
        else:
            yield from self._wider(policy, entries, why)
        if (embedding := _embedding_model(fleet)) and policy is not None and not policy.get("semantic"):
            similar_permille = SemanticCache(embedding).similarity_permille
            semantic = {
                "embedding_model": embedding, "similarity_permille": similar_permille, "max_entries": entries
            }  # fmt: skip
            edit = Edit("cache-policies", policy["name"], {"semantic": semantic})
            yield Lever("semantic_cache", _("Keep answers to questions that mean the same"), why, (edit,),
                        advice=_("It gives nothing before somebody approved it: have clients send feedback, and watch "
                                 "the wrong hits."))  # fmt: skip

    def _wider(self, policy: Any, entries: int, why: Any) -> Iterator[Lever]:
        exact = policy["exact"]
        if exact["max_entries"] < entries:
            edit = Edit("cache-policies", policy["name"], {"exact": {**exact, "max_entries": entries}})
            yield Lever("more_entries", _("Keep more answers"), why, (edit,))
        advice = _(
            "There is an exact cache already. Its answers are each gateway's own, and a request is the same only where "
            "its whole body is: send one tenant to one gateway, leave ids and dates out of the body, and see whether "
            "clients send Cache-Control: no-cache."
        )
        yield Lever("mend_cache", _("See why the cache misses"), why, advice=advice)

    def _cascades(self, fleet: Fleet, pools: tuple[str, ...]) -> Iterator[Lever]:
        """Ask a small model first, where the fleet has one."""
        for route in fleet.routes:
            served = [pool for pool in route["pools"] or {} if pool in pools]
            if not served or route["cascade"] is not None:
                continue
            small = self._small_pool(fleet, served[0])
            if small is None:
                continue
            cascade: dict[str, Any] = {"pool": small, "escalate_on": ["empty", "engine_failed", "length", "refusal"]}
            lengths = fleet.pools[served[0]].lengths
            if lengths is not None and 900 in lengths.prompt_tokens:
                cascade["max_prompt_tokens"] = lengths.prompt_tokens[900]
            why = format_lazy(_("{small} serves a model of less than half of {pool}'s KV cache a token"),
                              small=small, pool=served[0])  # fmt: skip
            edit = Edit("routes", route["name"], {"cascade": cascade})
            yield Lever("small_first", _("Ask a small model first"), why, (edit,),
                        advice=_("Compare its answers with the large model's on your own questions."))  # fmt: skip
            return

    def _small_pool(self, fleet: Fleet, pool: str) -> str | None:
        facts = fleet.pools.get(pool)
        large = 0 if facts is None else _kv_bytes(fleet, facts.row["model"])
        found = [
            (_kv_bytes(fleet, other.row["model"]), name)
            for name, other in fleet.pools.items()
            if name != pool and other.engines and other.row["work"] in ("short", "long")
        ]
        fitting = sorted(each for each in found if 0 < each[0] <= large * self.SMALL_SHARE)
        return fitting[0][1] if fitting else None


_CAREFUL = _(
    "Leave it where answers depend on who asks and the request does not say so: a tenant's keys share its answers. "
    "Give short-lived topics a shorter ttl_ms."
)


def _policy_of(fleet: Fleet, tenant: str, pools: tuple[str, ...]) -> Any:
    """The tenant's own cache policy, else that of the models of these pools where they have but one."""
    if own := fleet.tenants.get(tenant, {}).get("cache_policy"):
        return fleet.cache_policies.get(own)
    models = {fleet.pools[pool].row["model"] for pool in pools if pool in fleet.pools}
    of_models = {str(policy) for model in models if (policy := fleet.models.get(model, {}).get("cache_policy"))}
    return fleet.cache_policies.get(of_models.pop()) if len(of_models) == 1 else None


def _policy_name(fleet: Fleet, tenant: str) -> str:
    """One that there is not yet."""
    name, number = f"answers-{tenant}"[:60], 1
    while name in fleet.cache_policies:
        number += 1
        name = f"answers-{tenant}"[:56] + f"-{number}"
    return name


def _embedding_model(fleet: Fleet) -> str | None:
    served = (facts.row["model"] for _, facts in sorted(fleet.pools.items())
              if facts.row["work"] == "embedding" and facts.engines)  # fmt: skip
    return next(served, None)


def _kv_bytes(fleet: Fleet, model: str) -> int:
    return int(fleet.models.get(model, {}).get("kv_bytes_per_token", 0))


def _repeat_expr(fleet: Fleet, tenant: str) -> str:
    window = fleet.window_seconds
    again = of("headworks_gateway_repeated_requests_total", window, kind="duplicate", tenant=tenant)
    return f"sum(increase({again})) / sum(increase({of('headworks_gateway_requests_total', window, tenant=tenant)}))"


def _wrong_expr(fleet: Fleet, tenant: str) -> str:
    names = ("headworks_gateway_cache_wrong_hits_total", "headworks_gateway_cache_hits_total")
    wrong, all_of = (
        f"sum(increase({of(name, fleet.window_seconds, cache='semantic', tenant=tenant)}))" for name in names
    )
    return f"{wrong} / {all_of}"
