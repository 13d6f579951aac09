"""Can this many tokens a minute be promised to a tenant? From live limits, routes, engines and measured residence."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from django.utils import timezone

from controlplane.configs.current import current
from controlplane.configs.ledger import Promised, ledger
from controlplane.configs.oversubscription import SECTIONS, Capacity, capacities
from controlplane.configs.pool_means import means_now
from controlplane.core import fields as f
from controlplane.core.errors import NotFound
from controlplane.telemetry import query
from policy.promises import UNMEASURED, Means, Promise, Reach
from wire.canonical import Document

log = logging.getLogger(__name__)
Verdict = Literal["yes", "no", "unknown"]
# What a pool does now, and did in the busiest minute of a week: tokens a minute, prompts and answers together.
_SERVED = " + ".join(f"pool:headworks_gateway_{kind}_tokens:rate1m" for kind in ("prompt", "generation"))
NOW_QUERY = f"60 * ({_SERVED})"
BUSIEST_QUERY = "60 * (" + " + ".join(
    f"max_over_time(pool:headworks_gateway_{kind}_tokens:rate1m[7d])" for kind in ("prompt", "generation")
) + ")"  # fmt: skip


class _Live(NamedTuple):
    now: Mapping[str, float]
    busiest: Mapping[str, float]


def ask(tenant: str, tpm: int) -> Document:
    """What `tpm` as the tenant's limit would make of each pool that it reaches. Changes nothing. Raises NotFound.

    `yes`: in each of them all promises together stay within what engines may hold. `no`: in one they do not.
    `unknown`: an engine has not told its KV cache, or no residence was measured, or the tenant reaches no pool.
    """
    now, means = current(SECTIONS), means_now()
    entry = now.section("tenants").get(tenant)
    if entry is None:
        raise NotFound(f"there is no tenant {tenant!r}")
    asked = now.but({("tenants", tenant): {**entry, "tpm_limit": tpm}})
    before, after, has = ledger.promised(now, means), ledger.promised(asked, means), capacities(now)
    shares = [
        (pool, reach, own)
        for pool, rows in sorted(ledger.shares(asked, means).items())
        for name, reach, own in rows
        if name == tenant
    ]
    live = _live()
    nobody = Promised()
    pools = [
        _pool(pool, reach, own, has.get(pool), before.get(pool, nobody), after.get(pool, nobody), means, live)
        for pool, reach, own in shares
    ]
    return {
        "tenant": tenant,
        "tpm": tpm,
        "tpm_now": entry.get("tpm_limit"),
        "verdict": _worst([pool["verdict"] for pool in pools]),
        "says": _in_words(tenant, tpm, pools),
        "largest_tpm": _least([pool["largest_tpm"] for pool in pools]),
        "pools": pools,
    }


def _live() -> _Live:
    at = f.epoch_ms(timezone.now())
    found: list[dict[str, float]] = []
    for promql in (NOW_QUERY, BUSIEST_QUERY):
        try:
            samples = query.instant(promql, at, seconds_max=query.PAGE_SECONDS)
        except query.QueryError as error:
            log.info("what pools serve is not known: %s", error)
            samples = []
        found.append({sample.labels.get("pool", ""): sample.value for sample in samples if math.isfinite(sample.value)})
    return _Live(*found)


def _pool(
    name: str,
    reach: Reach,
    own: Promise,
    capacity: Capacity | None,
    before: Promised,
    after: Promised,
    means_by_pool: Mapping[str, Means],
    live: _Live,
) -> Document:
    admissible = None if capacity is None else capacity.admissible_tokens
    means = means_by_pool.get(name, UNMEASURED)
    return {
        "pool": name,
        "verdict": _verdict(admissible, after, own),
        "admissible_tokens": admissible,
        "mean_residence_seconds": means.residence_seconds,
        "reaches_permille": reach.permille,
        "share_tokens": own.tokens,
        "basis": own.basis,
        "promised_tokens_now": before.tokens,
        "promised_permille_now": _permille(before.tokens, admissible),
        "promised_tokens": after.tokens,
        "promised_permille": _permille(after.tokens, admissible),
        "missing_tokens": None if admissible is None else max(0, after.tokens - admissible),
        "tenants_without_bound": after.unbounded,
        "largest_tpm": _largest_tpm(admissible, after, own, reach, means),
        "served_tpm_now": _whole(live.now.get(name)),
        "served_tpm_busiest": _whole(live.busiest.get(name)),
    }


def _verdict(admissible: int | None, after: Promised, own: Promise) -> Verdict:
    if admissible is None or own.tokens is None:
        return "unknown"
    return "yes" if after.tokens <= admissible else "no"


def _largest_tpm(admissible: int | None, after: Promised, own: Promise, reach: Reach, means: Means) -> int | None:
    """The limit with which all that is promised is just what may be held; None where nothing bounds it or is known."""
    if admissible is None or own.tokens is None or not means.residence_seconds or not reach.permille:
        return None
    left = admissible - (after.tokens - own.tokens)
    return max(0, math.floor(left * 1000 / reach.permille * 60 / means.residence_seconds))


def _permille(part: int, whole: int | None) -> int | None:
    return part * 1000 // whole if whole else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _least(values: list[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _worst(verdicts: list[Verdict]) -> Verdict:
    if "no" in verdicts:
        return "no"
    return "yes" if verdicts and set(verdicts) == {"yes"} else "unknown"


def _in_words(tenant: str, tpm: int, pools: list[Document]) -> str:
    if not pools:
        return f"no route leads {tenant!r} to a pool: it is blocked, or may use no model that is routed"
    return "; ".join(_pool_in_words(pool) for pool in pools)


def _pool_in_words(pool: Document) -> str:
    name = f"pool {pool['pool']!r}"
    if pool["admissible_tokens"] is None:
        return f"{name}: an engine has not told how much KV cache it has, so what it may hold is not known"
    if pool["share_tokens"] is None:
        return f"{name}: how long requests stay there was not measured in the last hour, so a rate bounds no tokens"
    held = f"{pool['promised_tokens']} of {pool['admissible_tokens']} tokens would be promised"
    part = "" if pool["promised_permille"] is None else f" ({pool['promised_permille'] / 10:g} %)"
    without = pool["tenants_without_bound"]
    others = f", and tenants without a bound are in no sum: {without}" if without else ""
    if pool["verdict"] == "yes":
        return f"{name}: {held}{part}{others}"
    return f"{name}: {held}{part}, {pool['missing_tokens']} too many{others}"
