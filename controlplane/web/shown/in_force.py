"""All that people have set aside from what the program would do by itself: where, by whom, why, until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import or_
from typing import NamedTuple

from django.db.models import F, Max, Q, Value
from django.urls import reverse
from django.utils import timezone

from controlplane.breakers import standing
from controlplane.breakers.standing import Forced
from controlplane.configs import stages
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


def in_force(forced: Forced) -> list[InForce]:
    """What ends first comes first, then what has no end, newest first."""
    found = [*_overrides(forced), *_temporary_limits(), *_stage(), *_cordons()]
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


def _temporary_limits() -> list[InForce]:
    rows = TemporaryLimits.objects.filter(expires_at__gt=timezone.now()).select_related("tenant")
    found = []
    for row in rows.order_by("expires_at")[:ROWS]:
        limits = {name: getattr(row, name) for name in TEMPORARY_LIMITS}
        found.append(
            InForce(
                noun="tenant",
                subject=row.tenant.name,
                address=reverse("web:tenant", args=[row.tenant.name]),
                state="limited",
                detail=", ".join(
                    f"{place_label([name])} {grouped(value)}" for name, value in limits.items() if value is not None
                ),
                owner=row.owner,
                reason=row.reason,
                since=None,
                until=row.expires_at,
                end=reverse("web:end_temporary_limits", args=[row.tenant.name]),
            )
        )
    return found


def _stage() -> list[InForce]:
    stage = stages.running()
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


def _cordons() -> list[InForce]:
    """Of nodes, then of engines."""
    nodes, engines = (
        kind._default_manager.filter(cordoned=True)
        .order_by()
        .annotate(noun=Value(noun), on_node=F(on_node))
        .values_list("noun", "name", "on_node")
        for kind, noun, on_node in ((Node, "node", "name"), (Engine, "engine", "node__name"))
    )
    cordoned = list(nodes.union(engines, all=True).order_by("-noun", "name")[:ROWS])
    entries = _cordoned_by((noun, name) for noun, name, _node in cordoned)
    found = []
    for noun, name, node in cordoned:
        entry = entries.get((noun, name))
        found.append(
            InForce(
                noun=noun,
                subject=name,
                address=reverse("web:node", args=[node]) if node else reverse("web:fleet"),
                state="cordoned",
                detail="",
                owner=actor_label(entry.actor_kind, entry.actor) if entry else "",
                reason=entry.reason if entry else "",
                since=entry.at if entry else None,
                until=None,
                end=reverse(f"web:uncordon_{noun}", args=[name]),
            )
        )
    return found


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
