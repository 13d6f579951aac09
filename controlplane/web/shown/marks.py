"""What happened to the fleet in a time, for charts: revisions, cordons, incidents, steps of rollouts.

Nothing is written for it: all is read from what each of them leaves behind anyway, in one bounded query a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import JSONObject
from django.urls import reverse

from controlplane.alerts.models import Incident
from controlplane.configs.models import Revision
from controlplane.core.fields import epoch_ms, iso
from controlplane.core.models import AuditEntry
from controlplane.rollouts.models import Step, StepState
from wire.canonical import Document

# A person sees no more in a chart. Of more, the newest are read.
ROWS_MAX = 500
REVISION, CORDON, INCIDENT, ROLLOUT = "revision", "cordon", "incident", "rollout"
KINDS = (REVISION, CORDON, INCIDENT, ROLLOUT)


@dataclass(frozen=True)
class Mark:
    """One moment (Unix ms) at which something happened, in no language.

    `id`: the same in every reading. `state` tells marks of one kind apart, such as cordon from uncordon. `name`: of
    what it happened to. `actor`: who did it, empty where nobody did. `about`: more of it, by kind. `labels`: the pools,
    the node or the tenant that it is about, by label; one that is about none of a label's belongs to all. `page`: the
    path of its page.
    """

    id: str
    at_ms: int
    kind: str
    state: str
    name: str
    page: str
    actor_kind: str = ""
    actor: str = ""
    why: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def within(self, only: Mapping[str, str]) -> bool:
        """Whether it belongs to what a viewer chose, by label."""
        return all(chosen in self.labels.get(label, (chosen,)) for label, chosen in only.items())

    def document(self) -> Document:
        """The public form."""
        return {
            "id": self.id,
            "at": iso(_moment(self.at_ms)),
            "kind": self.kind,
            "state": self.state,
            "name": self.name,
            "actor_kind": self.actor_kind or None,
            "actor": self.actor or None,
            "why": self.why or None,
            "about": dict(self.about),
            "labels": {label: list(names) for label, names in self.labels.items()},
            "page": self.page,
        }


@dataclass(frozen=True)
class Marks:
    """In the order of time. `cut`: the kinds of which there were more than ROWS_MAX, the older ones left out."""

    found: Sequence[Mark]
    cut: frozenset[str]


def read(first_ms: int, last_ms: int) -> Marks:
    """The marks from `first_ms` to `last_ms` (Unix ms), both included."""
    first, last = _moment(first_ms), _moment(last_ms)
    found: list[Mark] = []
    cut = set()
    for kind, newest in _READERS.items():
        rows = list(newest(first, last)[: ROWS_MAX + 1])
        if len(rows) > ROWS_MAX:
            cut.add(kind)
        marks = (mark for row in rows[:ROWS_MAX] for mark in _MAKERS[kind](row))
        found += [mark for mark in marks if first_ms <= mark.at_ms <= last_ms]
    return Marks(sorted(found, key=lambda mark: (mark.at_ms, mark.id)), frozenset(cut))


def _revisions(first: datetime, last: datetime) -> QuerySet[Any, Any]:
    """With the first of what was done in each, and how much there was."""
    done = AuditEntry.objects.filter(revision=OuterRef("number")).order_by()
    names = ("noun", "key", "actor_kind", "actor", "reason")
    beginning = done.order_by("pk").values(entry=JSONObject(**{name: F(name) for name in names}))[:1]
    counted = done.values("revision").annotate(count=Count("pk")).values("count")
    return (
        Revision.objects.filter(published_at__range=(first, last))
        .annotate(entry=Subquery(beginning), entries=Subquery(counted))
        .order_by("-number")
        .values("number", "published_at", "rollback_to", "entry", "entries")
    )


def _of_revision(row: Mapping[str, Any]) -> Iterator[Mark]:
    number, entry = row["number"], row["entry"] or {}
    yield Mark(
        id=f"revision-{number}",
        at_ms=epoch_ms(row["published_at"]),
        kind=REVISION,
        state="published" if row["rollback_to"] is None else "rolled_back",
        name=str(number),
        page=reverse("web:revision", args=[number]),
        actor_kind=entry.get("actor_kind", ""),
        actor=entry.get("actor", ""),
        why=entry.get("reason", ""),
        about={"noun": entry.get("noun"), "key": entry.get("key"), "changes": row["entries"] or 0},
    )


def _cordons(first: datetime, last: datetime) -> QuerySet[AuditEntry]:
    turned = Q(before__cordoned=False, after__cordoned=True) | Q(before__cordoned=True, after__cordoned=False)
    return AuditEntry.objects.filter(turned, at__range=(first, last), noun__in=("node", "engine")).order_by("-pk")


def _of_cordon(row: AuditEntry) -> Iterator[Mark]:
    after = row.after or {}
    node = row.key if row.noun == "node" else after.get("node")
    places = {"node": node, "pool": after.get("pool")}
    yield Mark(
        id=f"cordon-{row.pk}",
        at_ms=epoch_ms(row.at),
        kind=CORDON,
        state="cordoned" if after["cordoned"] else "uncordoned",
        name=row.key,
        page=reverse("web:node", args=[node]) if node else reverse("web:fleet"),
        actor_kind=row.actor_kind,
        actor=row.actor,
        why=row.reason,
        about={"noun": row.noun},
        labels={label: (name,) for label, name in places.items() if name},
    )


def _incidents(first: datetime, last: datetime) -> QuerySet[Incident]:
    inside = Q(started_at__range=(first, last)) | Q(resolved_at__range=(first, last))
    return Incident.objects.filter(inside).order_by("-started_at", "-pk")


def _of_incident(row: Incident) -> Iterator[Mark]:
    labels = {label: (name,) for label in ("node", "pool", "tenant") if (name := row.labels.get(label))}
    if row.node:
        labels["node"] = (row.node,)
    for state, at in (("began", row.started_at), ("resolved", row.resolved_at)):
        if at is not None:
            yield Mark(
                id=f"incident-{row.pk}-{state}",
                at_ms=epoch_ms(at),
                kind=INCIDENT,
                state=state,
                name=row.title,
                page=reverse("web:incident", args=[row.pk]),
                about={"incident": row.pk, "severity": row.severity},
                labels=labels,
            )


def _steps(first: datetime, last: datetime) -> QuerySet[Step]:
    inside = Q(begun_at__range=(first, last)) | Q(ended_at__range=(first, last))
    return Step.objects.filter(inside).select_related("rollout").order_by("-begun_at", "-pk")


def _of_step(row: Step) -> Iterator[Mark]:
    """A step that ended well is seen by the next one's begin; one that failed is a mark of its own."""
    rollout = row.rollout
    moments = [("begun", row.begun_at), *([("failed", row.ended_at)] if row.state == StepState.FAILED else [])]
    for state, at in moments:
        if at is not None:
            yield Mark(
                id=f"step-{row.pk}-{state}",
                at_ms=epoch_ms(at),
                kind=ROLLOUT,
                state=state,
                name=" → ".join(filter(None, (rollout.pool, rollout.new_pool))),
                page=reverse("web:rollout", args=[rollout.pk]) + f"#step-{row.index}",
                # Only who asked for it is kept as text.
                actor_kind="user",
                actor=rollout.owner,
                why=row.said if state == "failed" else rollout.reason,
                about={
                    "rollout": rollout.pk,
                    "index": row.index,
                    "step": row.kind,
                    "share_permille": row.arguments.get("share_permille"),
                },
                labels={"pool": tuple(filter(None, (rollout.pool, rollout.new_pool)))},
            )


_READERS = {REVISION: _revisions, CORDON: _cordons, INCIDENT: _incidents, ROLLOUT: _steps}
_MAKERS: Mapping[str, Any] = {
    REVISION: _of_revision,
    CORDON: _of_cordon,
    INCIDENT: _of_incident,
    ROLLOUT: _of_step,
}


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
