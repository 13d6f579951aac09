"""What a change may not leave behind: broken references, wrong sums, a pool that is routed to and has no engine.

Only what the change touches, and what names what it removed or remade, is loaded, with everything that those name
in turn. On that closed part runs the same check that a target runs before it applies a slice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import or_
from typing import TypeGuard

from django.db.models import Q, QuerySet

from controlplane.configs.models import Fragment
from controlplane.configs.pinned import pins_to_others
from controlplane.configs.references import REFERRERS, EntryKey, Transition, keys_by_section, references
from wire.canonical import Document
from wire.problems import Problem, pointer, type_problems
from wire.snapshot import Act, NodeState
from wire.snapshot_checks import SnapshotRefused, decode_snapshot

# Fields of a tenant that name one entry of a section, and sections of which it names several.
_TENANTS_NAME_ONE_BY = {
    "priority_classes": "default_priority_class",
    "session_limits": "session_limits",
    "cache_policies": "cache_policy",
}
_TENANTS_NAME_MANY_BY = {"models": "models", "aliases": "models", "priority_classes": "priority_classes"}
# Sections that tenants may name in their pins.
_PINNED = ("models", "aliases")
# Fields of an entry by which others that name it may come to be wrong.
_AGREED_ON = {"pools": ("model", "adapters"), "models": ("adapter",)}
# Sections of which no two entries share a name.
_NAMESAKES = {"models": "aliases", "aliases": "models"}
# What agents alone are told, and name nothing that others tell of.
_OF_AGENTS = {"nodes": NodeState, "acts": Act}


def problems_of(changed: dict[EntryKey, Transition]) -> list[Problem]:
    """Every reason against a change whose fragments are written already; empty if there is none."""
    entries = {entry: after for entry, (_, after) in changed.items() if after is not None}
    removed = [entry for entry, (_, after) in changed.items() if after is None]
    remodelled = [entry for entry, transition in changed.items() if _serves_another_model(entry, transition)]
    namesakes = load((_NAMESAKES[section], key) for section, key in entries if section in _NAMESAKES)
    part = {**_naming(removed + remodelled), **namesakes, **entries}
    of_agents = [(section, key, part.pop((section, key))) for section, key in list(part) if section in _OF_AGENTS]
    found = [
        problem
        for section, key, content in of_agents
        for problem in type_problems(content, _OF_AGENTS[section], pointer(f"/{section}", key))
    ]
    try:
        decode_snapshot({"kind": "gateway", "schema": 1, **_by_section(_closed(part))})
    except SnapshotRefused as refused:
        found += refused.problems
    return found + pins_to_others(changed) + _last_engine_problems(changed)


def _serves_another_model(entry: EntryKey, transition: Transition) -> bool:
    """Whether a pool or a model was made another, with which what names it must agree."""
    before, after = transition
    if before is None or after is None:
        return False
    return any(before.get(field) != after.get(field) for field in _AGREED_ON.get(entry[0], ()))


def _by_section(entries: dict[EntryKey, Document]) -> Document:
    document: Document = {}
    for (section, key), content in entries.items():
        document.setdefault(section, {})[key] = content
    return document


def _closed(part: dict[EntryKey, Document]) -> dict[EntryKey, Document]:
    """`part` and all that it names, directly or through what it names, as far as it exists."""
    known = dict(part)
    asked = set(known)
    frontier: Iterable[tuple[EntryKey, Document]] = list(known.items())
    while wanted := {name for (section, _), content in frontier for name in references(section, content)} - asked:
        asked |= wanted
        found = load(wanted)
        known.update(found)
        frontier = list(found.items())
    return known


def load(entries: Iterable[EntryKey]) -> dict[EntryKey, Document]:
    """The entries that exist, as the last write left them; one query."""
    keys = keys_by_section(entries)
    if not keys:
        return {}
    wanted = reduce(or_, (Q(section=section, key__in=names) for section, names in keys.items()))
    found = Fragment.objects.filter(wanted, content__isnull=False).values_list("section", "key", "content")
    return {(section, key): content for section, key, content in found if content is not None}


def contents(rows: QuerySet[Fragment]) -> dict[str, Document]:
    """Key → content of those that exist."""
    found = rows.filter(content__isnull=False).values_list("key", "content")
    return {key: content for key, content in found if content is not None}


def _naming(entries: list[EntryKey]) -> dict[EntryKey, Document]:
    """The entries that name one of these."""
    found: dict[EntryKey, Document] = {}
    for section, keys in keys_by_section(entries).items():
        for referrer in REFERRERS.get(section, ()):
            for key, content in _candidates(referrer, section, keys).items():
                if any(target == section and name in keys for target, name in references(referrer, content)):
                    found[referrer, key] = content
    return found


def _candidates(referrer: str, section: str, keys: list[str]) -> dict[str, Document]:
    """Entries of `referrer` that may name one of `keys`, found in the database where the section can be large."""
    rows = Fragment.objects.filter(section=referrer)
    if referrer == "tenants":
        naming = Q()
        if (field := _TENANTS_NAME_ONE_BY.get(section)) is not None:
            naming = Q(**{f"content__{field}__in": keys})
        if (field := _TENANTS_NAME_MANY_BY.get(section)) is not None:
            for key in keys:
                naming |= Q(**{f"content__{field}__has_key": key})
        if section in _PINNED:
            naming |= Q(content__has_key="pins")
        rows = rows.filter(naming)
    elif referrer == "keys":
        rows = rows.filter(content__tenant__in=keys)
    elif referrer == "engines":
        rows = rows.filter(content__pool__in=keys)
    return contents(rows)


def _last_engine_problems(changed: dict[EntryKey, Transition]) -> list[Problem]:
    """Pools that lost their last engine by this change while a route still leads to them."""
    left = {
        before["pool"]
        for (section, _), (before, after) in changed.items()
        if section == "engines" and before is not None and (after is None or after.get("pool") != before["pool"])
    }
    engines = Fragment.objects.filter(section="engines", content__isnull=False)
    emptied = {pool for pool in left if not engines.filter(content__pool=pool).exists()}
    return [
        Problem(
            pointer("/pools", pool),
            "last_engine",
            f"pool {pool!r} would have no engine left, and these routes lead to it: {', '.join(routes)}; "
            "change the routes first, or cordon the engine",
        )
        for pool, routes in _routes_to(emptied)
    ]


def idle_pools(changed: dict[EntryKey, Transition]) -> list[Problem]:
    """Warnings of pools whose last engine that took work stops to by this change, while a route leads to them."""
    stopped = {
        before["pool"]
        for (section, _), (before, after) in changed.items()
        if section == "engines" and _works(before) and not (_works(after) and after["pool"] == before["pool"])
    }
    if not stopped:
        return []
    engines = contents(Fragment.objects.filter(section="engines", content__pool__in=sorted(stopped)))
    working = {engine["pool"] for engine in engines.values() if _works(engine)}
    return [
        Problem(
            pointer("/pools", pool),
            "no_working_engine",
            f"no engine of pool {pool!r} takes work any more, and these routes lead to it: {', '.join(routes)}; "
            "what no fallback takes is refused with 503",
        )
        for pool, routes in _routes_to(stopped - working)
    ]


def _works(engine: Document | None) -> TypeGuard[Document]:
    return engine is not None and not engine.get("cordoned")


def _routes_to(pools: Collection[str]) -> list[tuple[str, list[str]]]:
    """Those of the pools that routes name, each with these routes."""
    if not pools:
        return []
    routed: dict[str, set[str]] = {}
    for name, content in contents(Fragment.objects.filter(section="routes")).items():
        for section, pool in references("routes", content):
            if section == "pools" and pool in pools:
                routed.setdefault(pool, set()).add(name)
    return [(pool, sorted(routes)) for pool, routes in sorted(routed.items())]
