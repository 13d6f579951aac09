"""Incidents in the form that pages show: with who was told of them, and how long they last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, QuerySet, Value, When
from django.utils import timezone

from controlplane.alerts.models import Delivery, Incident, IncidentState, Receiver, Severity

RESOLVED_PER_PAGE = 50
# A fleet on fire is read from the worst down; the REST call gives all.
FIRING_SHOWN = 200
_WORST_FIRST = Case(*(When(severity=each, then=Value(-each.rank)) for each in Severity))


@dataclass(frozen=True)
class Told:
    """How many messages of an incident were delivered, wait, or were given up."""

    delivered: int = 0
    waiting: int = 0
    failed: int = 0

    @property
    def all(self) -> int:
        return self.delivered + self.waiting + self.failed


@dataclass(frozen=True)
class IncidentLine:
    row: Incident
    told: Told
    lasts_seconds: float

    @property
    def state(self) -> str:
        """What is shown first: how grave it is while it fires, then that it is over."""
        return self.row.severity if self.row.state == IncidentState.FIRING else self.row.state


@dataclass(frozen=True)
class Page:
    """`firing` in order of severity, then the newest first; `before`: where the next page of resolved ones starts."""

    firing: list[IncidentLine]
    firing_more: int
    resolved: list[IncidentLine]
    before: int | None


def page(state: str, node: str, before: int | None) -> Page:
    """A page of incidents, of one state and node where these are given. Only the first shows those that fire."""
    rows = Incident.objects.filter(node=node) if node else Incident.objects.all()
    firing, firing_count = [], 0
    if before is None and state != IncidentState.RESOLVED:
        burning = rows.filter(state=IncidentState.FIRING)
        firing = list(burning.order_by(_WORST_FIRST, "-started_at", "-pk")[:FIRING_SHOWN])
        firing_count = len(firing) if len(firing) < FIRING_SHOWN else burning.count()
    resolved = [] if state == IncidentState.FIRING else _resolved(rows, before)
    shown, more = resolved[:RESOLVED_PER_PAGE], len(resolved) > RESOLVED_PER_PAGE
    lines = lines_of(firing + shown)
    return Page(lines[: len(firing)], firing_count - len(firing), lines[len(firing) :], shown[-1].pk if more else None)


def _resolved(rows: QuerySet[Incident], before: int | None) -> list[Incident]:
    rows = rows.filter(state=IncidentState.RESOLVED)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-pk")[: RESOLVED_PER_PAGE + 1])


def lines_of(rows: list[Incident]) -> list[IncidentLine]:
    """One query for all."""
    told, now = _told("incident_id", incident__in=rows), timezone.now()
    return [IncidentLine(row, told[row.pk], _lasts_seconds(row, now)) for row in rows]


def _told(owner: str, **wanted: Any) -> Mapping[int, Told]:
    """By incident or receiver, what became of the messages."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    found = Delivery.objects.filter(**wanted).values_list(owner, "state").annotate(count=Count("pk"))
    for pk, state, count in found.order_by():
        counts[pk][state] = count
    # The states are the fields' names.
    return defaultdict(Told, {pk: Told(**states) for pk, states in counts.items()})


def _lasts_seconds(row: Incident, now: datetime) -> float:
    return ((row.resolved_at or now) - row.started_at).total_seconds()


@dataclass(frozen=True)
class ReceiverLine:
    row: Receiver
    told: Told


def receiver_lines() -> list[ReceiverLine]:
    """All receivers, each with what became of the messages to it that are still kept."""
    told = _told("receiver_id")
    return [ReceiverLine(row, told[row.pk]) for row in Receiver.objects.order_by("name")]
