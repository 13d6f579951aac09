"""All that people have set aside from what the program would do by itself: where, by whom, why, until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, DateTimeField, F, Max, Q, QuerySet, Value
from django.urls import reverse
from django.utils import timezone

from controlplane.breakers import standing
from controlplane.breakers.standing import Forced
from controlplane.configs.models import Stage
from controlplane.core.models import AuditEntry, Role
from controlplane.fleet.models import Engine, Node
from controlplane.tenants.models import TemporaryLimits
from controlplane.tenants.services.tenants import TEMPORARY_LIMITS
from controlplane.web.field_labels import place_label
from controlplane.web.labels import actor_label
from controlplane.web.templatetags.headworks import grouped

# More than a person reads; the REST calls give all.
ROWS = 200


class InForce(NamedTuple):
    """`state` is the name of its look. `until` None: until somebody ends it, at `end`, which a `role` may."""

    noun: str
    subject: str
    address: str
    state: str
    detail: str
    owner: str
    reason: str
    since: datetime | None
    until: datetime | None
    end: str
    role: Role = Role.OPERATOR


def in_force(forced: Forced, stage: Stage | None) -> list[InForce]:
    """What ends first comes first, then what has no end, newest first. `stage`: the one that runs."""
    found = [*_overrides(forced), *_limits_and_cordons(), *_stage(stage)]
    now = timezone.now()
    return sorted(found, key=lambda each: (each.until is None, each.until or now, -_stamp(each.since)))


def _stamp(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _overrides(forced: Forced) -> list[InForce]:
    rows = forced.rows[:ROWS]
    if not rows:
        return []
    return [
        InForce(
            noun=row.subject_kind,
            subject=row.subject,
            address=f"{reverse('web:breakers')}#{row.subject_kind}-{row.subject}",
            state=f"forced_{row.state}" if shown["standing"] == "holds" else "shadowed",
            detail=shown["shadowed_by"] or "",
            owner=row.owner,
            reason=row.reason,
            since=row.created_at,
            until=row.expires_at,
            end=reverse("web:end_override", args=[row.name]),
        )
        for row, shown in zip(rows, standing.shown(rows, forced), strict=True)
    ]


class _Row(NamedTuple):
    """A tenant's limits for a time; or a cordon, of which the audit knows the rest. `on_node`: where an engine is."""

    noun: str
    name: str
    on_node: str | None
    expires_at: datetime | None
    owner: str
    reason: str
    limits: dict[str, int | None]


_COLUMNS = _Row._fields[:-1]


def _limits_and_cordons() -> list[InForce]:
    """In one query, and in another who set the cordons."""
    rows = list(_rows())
    entries = _cordoned_by((row.noun, row.name) for row in rows if row.noun != "tenant")
    return [_limited(row) if row.noun == "tenant" else _cordoned(row, entries) for row in rows]


def _rows() -> Iterator[_Row]:
    limits = (
        TemporaryLimits.objects.filter(expires_at__gt=timezone.now())
        .order_by()
        .annotate(noun=Value("tenant"), name=F("tenant__name"), on_node=Value(""))
        .values_list(*_COLUMNS, *TEMPORARY_LIMITS)
    )
    # Each column has the type that it has in the first part.
    nothing: dict[str, Any] = {name: Value(None, BigIntegerField()) for name in TEMPORARY_LIMITS}
    nothing |= {"expires_at": Value(None, DateTimeField()), "owner": Value(""), "reason": Value("")}
    cordons = (
        kind._default_manager.filter(cordoned=True)
        .order_by()
        .annotate(noun=Value(noun), on_node=F(on_node), **nothing)
        .values_list(*_COLUMNS, *TEMPORARY_LIMITS)
        for kind, noun, on_node in ((Node, "node", "name"), (Engine, "engine", "node__name"))
    )
    found: QuerySet[Any, Any] = limits.union(*cordons, all=True)
    for values in found.order_by(F("expires_at").asc(nulls_last=True), "-noun", "name")[: 2 * ROWS]:
        limited = dict(zip(TEMPORARY_LIMITS, values[len(_COLUMNS) :], strict=True))
        yield _Row._make([*values[: len(_COLUMNS)], limited])


def _limited(row: _Row) -> InForce:
    given = [f"{place_label([name])} {grouped(value)}" for name, value in row.limits.items() if value is not None]
    return InForce(
        noun="tenant",
        subject=row.name,
        address=reverse("web:tenant", args=[row.name]),
        state="limited",
        detail=", ".join(given),
        owner=row.owner,
        reason=row.reason,
        since=None,
        until=row.expires_at,
        end=reverse("web:end_temporary_limits", args=[row.name]),
    )


def _cordoned(row: _Row, entries: Mapping[tuple[str, str], AuditEntry]) -> InForce:
    entry = entries.get((row.noun, row.name))
    return InForce(
        noun=row.noun,
        subject=row.name,
        address=reverse("web:node", args=[row.on_node]) if row.on_node else reverse("web:fleet"),
        state="cordoned",
        detail="",
        owner=actor_label(entry.actor_kind, entry.actor) if entry else "",
        reason=entry.reason if entry else "",
        since=entry.at if entry else None,
        until=None,
        end=reverse(f"web:uncordon_{row.noun}", args=[row.name]),
    )


def _stage(stage: Stage | None) -> list[InForce]:
    if stage is None:
        return []
    return [
        InForce(
            noun="stage",
            subject=str(stage.pk),
            address=reverse("web:stage", args=[stage.pk]),
            state="running",
            detail=stage.said,
            owner=stage.owner,
            reason=stage.reason,
            since=stage.started_at,
            until=stage.expires_at,
            end=reverse("web:take_back_stage", args=[stage.pk]),
        )
    ]


def _cordoned_by(cordoned: Iterable[tuple[str, str]]) -> dict[tuple[str, str], AuditEntry]:
    """(noun, name) → the write that cordoned it, or last gave another reason for it."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for noun, name in cordoned:
        names[noun].append(name)
    if not names:
        return {}
    wanted = reduce(or_, (Q(noun=noun, key__in=keys) for noun, keys in names.items()))
    about = AuditEntry.objects.filter(wanted, after__cordoned=True)
    newest = about.order_by().values("noun", "key").annotate(last=Max("pk")).values("last")
    return {(entry.noun, entry.key): entry for entry in AuditEntry.objects.filter(pk__in=newest)}
