"""What each pool's engines can hold, and what the limits of its tenants promise of it (policy/promises.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET

from controlplane.configs.current import Current, current
from controlplane.configs.ledger import Promised, entries_of, ledger
from controlplane.configs.pool_means import means_now
from controlplane.configs.references import EntryKey, Transition
from policy.ceilings import Ceiling, ceilings
from policy.kv import admissible_tokens
from policy.promises import UNMEASURED, Promise, Reach
from wire.canonical import Document
from wire.problems import Problem, pointer
from wire.snapshot import Engine, Pool, PriorityClass

SECTIONS = ("tenants", "priority_classes", "models", "aliases", "pools", "engines", "routes")
CEILING_SECTIONS = ("priority_classes", "pools", "engines")
# Those on which capacity depends; promises do on the others.
_HOLDING = ("pools", "engines")
# Fields of an entry on which capacity or promises depend; of other sections all do.
_BEARING = {
    "tenants": (
        "blocked", "tpm_limit", "rpm_limit", "max_parallel_requests", "max_tokens_cap", "models", "priority_classes",
        "default_priority_class", "schedule", "temporary", "pins",
    ),
    "engines": ("pool", "kv_capacity_tokens", "cordoned"),
    "pools": ("kv_admit_permille",),
    # Whether a class exists is all that counts.
    "priority_classes": (),
}  # fmt: skip


class Capacity(NamedTuple):
    """Of a pool's engines that take work. Tokens are None where there is none, or one has not told its own."""

    engines: int
    cordoned: int
    unknown: int
    tokens: int | None
    admissible_tokens: int | None


def warnings_of(changed: Mapping[EntryKey, Transition]) -> list[Problem]:
    """Pools that promise more than their engines can hold since this write, which has been stored already.

    None for what was as bad before it, or worse, and none where an engine has not said what it can hold.
    """
    bearing = {entry: moved for entry, moved in changed.items() if _bears(entry[0], *moved)}
    if not bearing:
        return []
    after = current(SECTIONS)
    before = after.but({entry: was for entry, (was, _) in bearing.items()})
    has = capacities(after)
    if all(capacity.admissible_tokens is None for capacity in has.values()):
        return []
    means = means_now()
    had = capacities(before) if any(section in _HOLDING for section, _ in bearing) else has
    promised_before, promised_after = ledger.promised(before, means), ledger.promised(after, means)
    return [
        _warning(name, promised, admissible)
        for name, promised in sorted(promised_after.items())
        if name in has
        and (admissible := has[name].admissible_tokens) is not None
        and promised.tokens > admissible
        and _worse(promised_before.get(name), had.get(name), promised.tokens, admissible)
    ]


def _bears(section: str, before: Document | None, after: Document | None) -> bool:
    if section not in SECTIONS:
        return False
    if before is None or after is None or section not in _BEARING:
        return True
    return any(before.get(name) != after.get(name) for name in _BEARING[section])


def _worse(before: Promised | None, had: Capacity | None, promised: int, admissible: int) -> bool:
    """Whether a larger part of what can be held is promised than before."""
    if before is None or had is None or had.admissible_tokens is None or before.tokens <= had.admissible_tokens:
        return True
    return promised * had.admissible_tokens > before.tokens * admissible


def _warning(pool: str, promised: Promised, admissible: int) -> Problem:
    part = f" ({promised.tokens * 100 // admissible} %)" if admissible else ""
    bounded = promised.tenants - promised.unbounded
    of_tenants = "1 tenant" if bounded == 1 else f"{bounded:,} tenants"
    message = (
        f"the limits of {of_tenants} promise {promised.tokens:,} tokens of context in pool {pool!r}, and its engines "
        f"may hold {admissible:,}{part}; tenants without a bound: {promised.unbounded:,}; lower limits or add engines"
    )
    return Problem(pointer("/pools", pool), "oversubscribed", message)


def capacities(now: Current) -> dict[str, Capacity]:
    """Pool → what its engines can hold."""
    engines = _engines_by_pool(now)
    return {
        name: _capacity(pool, engines.get(name, [])) for name, pool in entries_of(now.section("pools"), Pool).items()
    }


def ceilings_now(now: Current) -> dict[str, dict[str, Ceiling]]:
    """Pool → the classes that have a ceiling, with what it is there now."""
    classes = entries_of(now.section("priority_classes"), PriorityClass)
    engines = _engines_by_pool(now)
    return {pool: ceilings(classes, engines.get(pool, ())) for pool in now.section("pools")}


def _engines_by_pool(now: Current) -> dict[str, list[Engine]]:
    engines: dict[str, list[Engine]] = {}
    for engine in entries_of(now.section("engines"), Engine).values():
        engines.setdefault(engine.pool, []).append(engine)
    return engines


def _capacity(pool: Pool, engines: list[Engine]) -> Capacity:
    working = [engine for engine in engines if not engine.cordoned]
    told = [engine.kv_capacity_tokens for engine in working if engine.kv_capacity_tokens is not UNSET]
    unknown, cordoned = len(working) - len(told), len(engines) - len(working)
    if unknown or not engines:
        return Capacity(len(engines), cordoned, unknown, None, None)
    # Each engine is asked alone, so each rounds down for itself.
    admissible = sum(admissible_tokens(tokens, pool.kv_admit_permille) for tokens in told)
    return Capacity(len(engines), cordoned, 0, sum(told), admissible)


def describe(largest: int) -> list[Document]:
    """Every pool with its numbers and its `largest` shares. What is not known is null."""
    now, means = current(SECTIONS), means_now()
    lowered = ceilings_now(now)
    promised, shares, pools = ledger.promised(now, means), ledger.shares(now, means), now.section("pools")
    return [
        {
            "pool": name,
            "model": pools[name]["model"],
            "engines": {"all": capacity.engines, "cordoned": capacity.cordoned, "unknown": capacity.unknown},
            "capacity_tokens": capacity.tokens,
            "admissible_tokens": capacity.admissible_tokens,
            "ceilings": {priority_class: each._asdict() for priority_class, each in sorted(lowered[name].items())},
            "mean_residence_seconds": means.get(name, UNMEASURED).residence_seconds,
            "mean_context_tokens": means.get(name, UNMEASURED).context_tokens,
            **_described(promised.get(name, Promised()), capacity.admissible_tokens),
            "tenants": [
                _share(*each, capacity.admissible_tokens)
                for each in sorted(shares.get(name, ()), key=lambda each: (-_size(each[2]), each[0]))[:largest]
            ],
        }
        for name, capacity in sorted(capacities(now).items())
    ]


def _size(share: Promise) -> float:
    # What nothing bounds is the largest.
    return float("inf") if share.tokens is None else share.tokens


def _described(promised: Promised, admissible: int | None) -> Document:
    return {
        "promised_tokens": promised.tokens,
        "promised_permille": _permille(promised.tokens, admissible),
        "oversubscribed": None if admissible is None else promised.tokens > admissible,
        "tenants_in_all": promised.tenants,
        "tenants_without_bound": promised.unbounded,
    }


def _share(tenant: str, reach: Reach, share: Promise, admissible: int | None) -> Document:
    return {
        "tenant": tenant,
        "promised_tokens": share.tokens,
        "promised_permille": None if share.tokens is None else _permille(share.tokens, admissible),
        "basis": share.basis,
        "reaches_permille": reach.permille,
        "longest_context_tokens": reach.context_tokens,
    }


def _permille(part: int, whole: int | None) -> int | None:
    return part * 1000 // whole if whole else None
