"""What limits promise of each pool, kept between calls and brought up to date by what changed.

So a change of one tenant among ten thousand costs about the same as among ten.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from controlplane.configs.current import Current
from policy.promises import UNMEASURED, LargestLimits, Map, Means, Promise, Reach, largest_limits, promise
from wire.canonical import Document
from wire.snapshot import Alias, Model, Pool, Route, Tenant

StructT = TypeVar("StructT", bound=msgspec.Struct)
# The sections that say who reaches which pool, for all tenants at once.
_WAYS = ("routes", "models", "pools", "priority_classes", "aliases")


@dataclass
class Promised:
    """What all tenants together may hold in a pool; `unbounded` counts those whose share nothing bounds."""

    tokens: int = 0
    tenants: int = 0
    unbounded: int = 0

    def add(self, promised: Promise, times: int) -> None:
        self.tenants += times
        if promised.tokens is None:
            self.unbounded += times
        else:
            self.tokens += times * promised.tokens


class _Kept(NamedTuple):
    limits: LargestLimits
    reaches: dict[str, Reach]


class Ledger:
    """The promises of the configuration that a process has in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: tuple[Mapping[str, Document], ...] = ({},) * len(_WAYS)
        self._map = Map({}, {}, {}, ())
        self._means: Mapping[str, Means] = {}
        # The base's tenants, as it has them and as they were read; and the sums of what they promise.
        self._entries: Mapping[str, Document] = {}
        self._tenants: dict[str, _Kept] = {}
        self._promised: dict[str, Promised] = {}

    def promised(self, now: Current, means: Mapping[str, Means]) -> dict[str, Promised]:
        """Pool → what is promised of it."""
        with self._lock:
            self._follow(now, means)
            sums = {pool: replace(each) for pool, each in self._promised.items()}
            for name, content in now.changed("tenants").items():
                if (before := self._tenants.get(name)) is not None:
                    self._count(sums, before, -1)
                if (after := self._kept(name, content)) is not None:
                    self._count(sums, after, 1)
            return sums

    def shares(self, now: Current, means: Mapping[str, Means]) -> dict[str, list[tuple[str, Reach, Promise]]]:
        """Pool → each tenant that reaches it, with what it may hold there."""
        found: dict[str, list[tuple[str, Reach, Promise]]] = {}
        with self._lock:
            self._follow(now, means)
            tenants = dict(self._tenants)
            for name, content in now.changed("tenants").items():
                tenants.pop(name, None)
                if (kept := self._kept(name, content)) is not None:
                    tenants[name] = kept
            for name, kept in tenants.items():
                for pool, reach in kept.reaches.items():
                    share = promise(kept.limits, reach, means.get(pool, UNMEASURED))
                    found.setdefault(pool, []).append((name, reach, share))
        return found

    def _follow(self, now: Current, means: Mapping[str, Means]) -> None:
        """Bring the base's promises up to date."""
        ways = tuple(now.section(section) for section in _WAYS)
        if ways != self._ways:
            routes, models, pools, classes, aliases = ways
            self._map = Map(
                entries_of(routes, Route),
                entries_of(models, Model),
                entries_of(pools, Pool),
                classes.keys(),
                entries_of(aliases, Alias),
            )
            self._ways, self._entries, self._tenants, self._promised = ways, {}, {}, {}
        if means != self._means:
            self._means, self._promised = means, {}
            for kept in self._tenants.values():
                self._count(self._promised, kept, 1)
        entries = now.base("tenants")
        if entries is self._entries:
            return
        for name in self._tenants.keys() - entries.keys():
            self._count(self._promised, self._tenants.pop(name), -1)
        for name, entry in entries.items():
            if self._entries.get(name) is not entry:
                self._replace(name, entry)
        self._entries = entries

    def _replace(self, name: str, entry: Document) -> None:
        if (before := self._tenants.pop(name, None)) is not None:
            self._count(self._promised, before, -1)
        if (after := self._kept(name, entry)) is not None:
            self._tenants[name] = after
            self._count(self._promised, after, 1)

    def _kept(self, name: str, entry: Document | None) -> _Kept | None:
        tenant = None if entry is None else _struct(entry, Tenant)
        return None if tenant is None else _Kept(largest_limits(tenant), self._map.reached_by(name, tenant))

    def _count(self, sums: dict[str, Promised], kept: _Kept, times: int) -> None:
        for pool, reach in kept.reaches.items():
            sums.setdefault(pool, Promised()).add(promise(kept.limits, reach, self._means.get(pool, UNMEASURED)), times)


ledger = Ledger()


def entries_of(entries: Mapping[str, Document], kind: type[StructT]) -> dict[str, StructT]:
    """Those that can be read."""
    found = ((name, _struct(content, kind)) for name, content in entries.items())
    return {name: struct for name, struct in found if struct is not None}


def _struct(content: Any, kind: type[StructT]) -> StructT | None:
    """None for an entry of an older version that does not fit: a warning is no reason to refuse a write."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError:
        return None
