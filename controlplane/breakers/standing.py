"""Where breakers stand: the override that holds, the one after it, and what gateways told last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from controlplane.breakers import models as rows
from controlplane.breakers.services import OVERRIDES
from controlplane.core import fields as f
from controlplane.core.models import Target, TargetKind
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import POOLS
from controlplane.telemetry import query
from policy.breaker import turns
from wire import snapshot
from wire.canonical import Document

Subject = tuple[str, str]
# What was told before this is no answer to "how is it now".
FRESH_SECONDS = 60
# What a breaker is of, and the series of its state.
_STATES = {
    "engine": 'headworks_gateway_breaker_state{engine!="",gateway!=""}',
    "pool": 'headworks_gateway_pool_breaker_state{pool!="",gateway!=""}',
}


class Told(NamedTuple):
    """(name, gateway) → the state that holds there, overrides included. `missing`: why nothing is known at all."""

    states: Mapping[tuple[str, str], str]
    missing: str | None


class Forced:
    """The overrides that have not expired at one moment. `rows`: the one that ends first comes first. One query."""

    def __init__(self, now: datetime) -> None:
        self._now, self._now_ms = now, f.epoch_ms(now)
        self._on: dict[Subject, dict[str, snapshot.Override]] = {}
        # Of engines.
        self._pools: dict[str, str | None] = {}
        engine = Engine.objects.filter(name=OuterRef("subject"))
        unexpired = rows.Override.objects.filter(expires_at__gt=now).annotate(
            pool=Subquery(engine.values("pool__name"))
        )
        self.rows = list(unexpired.order_by("expires_at"))
        for row in self.rows:
            typed = msgspec.convert(OVERRIDES.wire_form(row), snapshot.Override)
            self._on.setdefault((row.subject_kind, row.subject), {})[row.name] = typed
            if row.subject_kind == "engine":
                self._pools[row.subject] = row.pool

    def turns(self, *subjects: Subject) -> list[Document]:
        """What holds on these at once now, and what comes next as far as nobody acts; each with its beginning."""
        on_these = {name: each for subject in subjects for name, each in self._on.get(subject, {}).items()}
        return [
            {
                "name": turn.name,
                "state": turn.override.state,
                "owner": turn.override.owner,
                "reason": turn.override.reason,
                "from": f.iso(f.from_epoch_ms(turn.from_ms)),
                "expires_at": f.iso(f.from_epoch_ms(turn.override.expires_at_ms)),
            }
            for turn in turns(on_these, self._now_ms)
        ]

    def holds_open(self, engine: Engine) -> bool:
        """Whether no gateway sends it a request: one that opens it, or its pool, is stricter than all others."""
        subjects = (("pool", engine.pool.name), ("engine", engine.name))
        return any(each.state == "open" for subject in subjects for each in self._on.get(subject, {}).values())

    def standing_of(self, row: rows.Override) -> Document:
        """Whether it holds, or which one does instead: of an engine also one of its pool."""
        if row.expires_at <= self._now:
            return {"standing": "expired", "shadowed_by": None}
        pool = self._pools.get(row.subject) if row.subject_kind == "engine" else None
        subjects = [(row.subject_kind, row.subject), *([("pool", pool)] if pool else [])]
        # One that was deleted since it was read stands by itself.
        held = next((each["name"] for each in self.turns(*subjects)), row.name)
        return {
            "standing": "holds" if held == row.name else "shadowed",
            "shadowed_by": None if held == row.name else held,
        }


def shown(overrides: Sequence[rows.Override], forced: Forced | None = None) -> list[Document]:
    """The public forms, and whether each holds: one that a stricter one of its subject shadows may hold later."""
    forced = forced or Forced(timezone.now())
    return [{**OVERRIDES.describe(row), **forced.standing_of(row)} for row in overrides]


def breakers(
    pools: Sequence[Pool], forced: Forced | None = None, gateways: Sequence[str] | None = None
) -> tuple[list[Document], str | None]:
    """Of each pool its thresholds, overrides and engines; and why what gateways told is missing, where it is.

    `gateways`: those that are not revoked, where they are known already.
    """
    now = timezone.now()
    forced, told = forced or Forced(now), _told("engine", f.epoch_ms(now))
    # A store that does not answer is not waited for twice.
    told_of_pools = told if told.missing else _told("pool", f.epoch_ms(now))
    if gateways is None:
        enrolled = Target.objects.filter(kind=TargetKind.GATEWAY, revoked_at=None)
        gateways = sorted(enrolled.values_list("name", flat=True))
    engines: dict[str, list[Document]] = {pool.name: [] for pool in pools}
    for row in Engine.objects.filter(pool__in=pools).select_related("pool", "node").order_by("name"):
        engines[row.pool.name].append(
            {
                "engine": row.name,
                "cordoned": row.takes_no_work,
                "overrides": forced.turns(("pool", row.pool.name), ("engine", row.name)),
                "gateways": {gateway: told.states.get((row.name, gateway)) for gateway in gateways},
            }
        )
    found = [
        {
            "pool": pool.name,
            "thresholds": POOLS.describe(pool)["breaker"],
            "overrides": forced.turns(("pool", pool.name)),
            "gateways": {gateway: told_of_pools.states.get((pool.name, gateway)) for gateway in gateways},
            "engines": engines[pool.name],
        }
        for pool in pools
    ]
    return found, told.missing


def states_query(kind: Literal["engine", "pool"]) -> str:
    """The states that hold of engines' breakers or of pools' own, as gateways told within the last minute."""
    states = _STATES[kind]
    # The first part knows of series that ended, the second of age alone: a gateway that was killed ends none.
    return f"{states} == 1 and on (gateway, {kind}, state) last_over_time({states}[{FRESH_SECONDS}s])"


def _told(kind: Literal["engine", "pool"], now_ms: int) -> Told:
    try:
        samples = query.instant(states_query(kind), now_ms, seconds_max=query.PAGE_SECONDS)
    except query.QueryError as error:
        return Told({}, str(error))
    labels = [sample.labels for sample in samples if math.isfinite(sample.value)]
    return Told({(each[kind], each["gateway"]): each["state"] for each in labels if "state" in each}, None)
