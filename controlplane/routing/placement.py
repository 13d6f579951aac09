"""What stands in the pools that a request would go to: forced breakers, engines that take work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from controlplane.core import fields as f
from controlplane.core.changes import sections
from controlplane.fleet.models import Engine
from policy.breaker import turns
from wire import snapshot
from wire.canonical import Document

OVERRIDES_SECTION = "overrides"
# Kind and name.
Subject = tuple[str, str]
Forced = Mapping[Subject, Mapping[str, snapshot.Override]]


def standing_in(pools: Iterable[str]) -> dict[str, Document]:
    """Of each pool the `override` that holds its breaker now, its `engines` that take work, and those `cordoned`."""
    found: dict[str, Document] = {pool: {"engines": [], "cordoned": []} for pool in pools}
    forced, now_ms = _overrides(), time.time_ns() // 1_000_000
    for pool, document in found.items():
        document["override"] = _held(forced, now_ms, ("pool", pool))
    rows = Engine.objects.filter(pool__name__in=list(found)).select_related("pool", "node").order_by("name")
    for row in rows:
        document = found[row.pool.name]
        if row.takes_no_work:
            document["cordoned"].append(row.name)
        else:
            held = _held(forced, now_ms, ("pool", row.pool.name), ("engine", row.name))
            document["engines"].append({"name": row.name, "override": held})
    return found


def _overrides() -> Forced:
    """By subject and name. They are of an app beside this one, which tells of them through its section."""
    section = sections[OVERRIDES_SECTION]
    found: dict[Subject, dict[str, snapshot.Override]] = {}
    for name in section.keys():  # noqa: SIM118 - a function of the section
        if (content := section.compile(name)) is not None:
            override = msgspec.convert(content, snapshot.Override)
            found.setdefault((override.subject_kind, override.subject), {})[name] = override
    return found


def _held(forced: Forced, now_ms: int, *subjects: Subject) -> Document | None:
    on_these = {name: each for subject in subjects for name, each in forced.get(subject, {}).items()}
    for turn in turns(on_these, now_ms):
        override = turn.override
        return {
            "name": turn.name,
            "state": override.state,
            "owner": override.owner,
            "reason": override.reason,
            "expires_at": f.iso(f.from_epoch_ms(override.expires_at_ms)),
        }
    return None
