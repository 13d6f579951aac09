"""Incidents in the form that pages show: with who was told of them, and how long they last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, QuerySet, Value, When
from django.utils import timezone

from controlplane.alerts.models import (
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Incident,
    IncidentState,
    Receiver,
    Severity,
)
from controlplane.alerts.services import alerts, evidence
from controlplane.alerts.services.incidents import Counts, Wanted, counted
from controlplane.web.shown import alert_rules
from controlplane.web.shown.spoken import spoken

RESOLVED_PER_PAGE = 50
# A fleet on fire is read from the worst down; the REST call gives all.
FIRING_SHOWN = 200
ROWS_OF_A_RECEIVER = 50
_WORST_FIRST = Case(*(When(severity=each, then=Value(-each.rank)) for each in Severity))


@dataclass(frozen=True)
class Told:
    """How many messages of an incident were delivered, wait, or were given up; a later one has `overtaken` others."""

    delivered: int = 0
    waiting: int = 0
    failed: int = 0
    overtaken: int = 0

    @property
    def all(self) -> int:
        return self.delivered + self.waiting + self.failed


@dataclass(frozen=True)
class IncidentLine:
    row: Incident
    told: Told
    lasts_seconds: float
    alerts: Counts

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
    # How many of those that fire there are of each severity, the gravest first.
    by_severity: list[tuple[str, int]]


def page(wanted: Wanted, before: int | None) -> Page:
    """A page of the incidents that are wanted. Only the first shows those that fire."""
    rows = wanted.among(Incident.objects.all())
    firing, firing_count, by_severity = [], 0, dict[str, int]()
    if before is None and wanted.state != IncidentState.RESOLVED:
        burning = rows.filter(state=IncidentState.FIRING)
        by_severity = dict(burning.values_list("severity").annotate(Count("pk")).order_by())
        firing = list(burning.order_by(_WORST_FIRST, "-started_at", "-pk")[:FIRING_SHOWN])
        firing_count = sum(by_severity.values())
    resolved = [] if wanted.state == IncidentState.FIRING else _resolved(rows, before)
    shown, more = resolved[:RESOLVED_PER_PAGE], len(resolved) > RESOLVED_PER_PAGE
    lines = lines_of(firing + shown)
    return Page(
        lines[: len(firing)],
        max(firing_count - len(firing), 0),
        lines[len(firing) :],
        shown[-1].pk if more else None,
        [(each.value, by_severity[each]) for each in reversed(Severity) if each in by_severity],
    )


def _resolved(rows: QuerySet[Incident], before: int | None) -> list[Incident]:
    rows = rows.filter(state=IncidentState.RESOLVED)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-pk")[: RESOLVED_PER_PAGE + 1])


@dataclass(frozen=True)
class EvidenceChart:
    title: str
    chart: alert_rules.Chart


def charts_of(row: Incident, now: datetime) -> list[EvidenceChart]:
    """What its rules compared, and what its events are about, in the hour around its start."""
    _start, end = evidence.span_of(row, now)
    charts = evidence.charts_of(alerts.first_of(row, evidence.ALERTS_READ))
    return [EvidenceChart(spoken(chart.title), alert_rules.drawn_chart(chart, end)) for chart in charts]


def lines_of(rows: list[Incident]) -> list[IncidentLine]:
    """Two queries for all."""
    told, now = _told("incident_id", incident__in=rows), timezone.now()
    counts = counted([row.pk for row in rows])
    return [IncidentLine(row, told[row.pk], _lasts_seconds(row, now), counts[row.pk]) for row in rows]


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

    @property
    def state(self) -> str:
        """On or off, or that its breaker keeps messages from it."""
        if not self.row.enabled:
            return "off"
        return "on" if self.row.open_until is None else "left_alone"

    @property
    def where(self) -> str:
        return where_of(self.row)


def where_of(row: Receiver) -> str:
    """Where a receiver's messages go, as far as that is no secret."""
    shown = [*row.settings.get("to", []), *row.settings.get("urls", [])]
    return row.url or ", ".join(shown)


def receiver_line(row: Receiver) -> ReceiverLine:
    return ReceiverLine(row, _told("receiver_id", receiver=row)[row.pk])


def unsent(row: Receiver) -> list[Delivery]:
    """Messages to a receiver that failed or wait, the last written first."""
    states = (DeliveryState.FAILED, DeliveryState.WAITING)
    found = row.deliveries.filter(state__in=states).select_related("incident", "receiver")
    return list(found.order_by("state", "-created_at", "-pk")[:ROWS_OF_A_RECEIVER])


def last_tries(row: Receiver) -> list[DeliveryAttempt]:
    """The last attempts at a receiver, whatever they were about."""
    found = DeliveryAttempt.objects.filter(delivery__receiver=row).select_related("delivery__incident")
    return list(found.order_by("-at", "-pk")[:ROWS_OF_A_RECEIVER])


def receiver_lines(rows: Sequence[Receiver]) -> list[ReceiverLine]:
    """Each with what became of the messages to it that are still kept. One query for all."""
    told = _told("receiver_id", receiver__in=rows)
    return [ReceiverLine(row, told[row.pk]) for row in rows]
