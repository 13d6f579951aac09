"""Incidents and their time lines: read, noted on, forgotten. Alerts open and end them (alerts.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Count, Exists, OuterRef, QuerySet

from controlplane.alerts import models as rows
from controlplane.core import fields as f
from controlplane.core.errors import NotFound
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document, content_hash

NOUN = "incident"
ALERTS, ALERTS_ENDED = "alerts", "alerts_ended"
ENTRIES_OF_ALERTS_MAX = 100
_TEXT_CHARACTERS = 2000


def fingerprint(labels: Mapping[str, str]) -> str:
    """What makes two signs the same alert: SHA-256 of the labels' canonical JSON, in hex."""
    return content_hash(dict(labels))


# An incident; kind, text and time of what its time line says.
Line = tuple[rows.Incident, str, str, datetime]


def note(
    incident: rows.Incident, kind: str, text: str, at: datetime, details: Mapping[str, Any] | None = None
) -> rows.IncidentEntry:
    """Add a line to the time line."""
    return rows.IncidentEntry.objects.create(
        incident=incident, at=at, kind=kind, text=text[:_TEXT_CHARACTERS], details=dict(details or {})
    )


def note_all(lines: Iterable[Line]) -> None:
    """Add a line to each of many incidents, in one statement."""
    rows.IncidentEntry.objects.bulk_create(
        rows.IncidentEntry(incident=incident, at=at, kind=kind, text=text[:_TEXT_CHARACTERS])
        for incident, kind, text, at in lines
    )


def note_alerts(lines: Sequence[Line]) -> None:
    """Add what alerts did: the first of it. A group that flaps for days would make its time line unreadable."""
    keys = [incident.pk for incident, *_ in lines]
    said = rows.IncidentEntry.objects.filter(incident__in=keys, kind__in=(ALERTS, ALERTS_ENDED)).order_by()
    counts: dict[int, int] = dict(said.values_list("incident").annotate(Count("pk")))
    note_all(line for line in lines if counts.get(line[0].pk, 0) < ENTRIES_OF_ALERTS_MAX)


def firing_on(node: str) -> list[rows.Incident]:
    """What fires on a node, by events and by rules, the oldest first.

    Not held: who evaluates a rule holds several of them too, in another order.
    """
    there = rows.Alert.objects.filter(state=rows.IncidentState.FIRING, labels__node=node)
    return list(rows.Incident.objects.filter(pk__in=there.values("incident")).order_by("pk"))


def get(incident_id: int) -> rows.Incident:
    """Raises NotFound."""
    incident = rows.Incident.objects.filter(pk=incident_id).first()
    if incident is None:
        raise NotFound(f"there is no incident {incident_id}")
    return incident


@dataclass(frozen=True)
class Wanted:
    """Which incidents; what is empty takes all."""

    state: str = ""
    node: str = ""
    severity: str = ""
    pool: str = ""
    acknowledged: bool | None = None

    def among(self, incidents: QuerySet[rows.Incident]) -> QuerySet[rows.Incident]:
        """A node and a pool are those of one alert at least."""
        plain = {"state": self.state, "severity": self.severity}
        incidents = incidents.filter(**{name: value for name, value in plain.items() if value})
        for label, value in (("node", self.node), ("pool", self.pool)):
            if value:
                alike = rows.Alert.objects.filter(incident=OuterRef("pk"), **{f"labels__{label}": value})
                incidents = incidents.filter(Exists(alike))
        if self.acknowledged is not None:
            incidents = incidents.filter(acknowledged_at__isnull=not self.acknowledged)
        return incidents


def page(wanted: Wanted, *, limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[rows.Incident], int | None]:
    """Incidents, newest first; `after` is the last of the page before."""
    incidents = wanted.among(rows.Incident.objects.all())
    if after:
        incidents = incidents.filter(pk__lt=after)
    return page_of(incidents.order_by("-pk"), limit, lambda incident: incident.pk)


def describe(incident: rows.Incident) -> Document:
    return {
        "id": incident.pk,
        "fingerprint": incident.fingerprint,
        "source": incident.source,
        "severity": incident.severity,
        "title": incident.title,
        "labels": incident.labels,
        "annotations": incident.annotations,
        "state": incident.state,
        "node": incident.node or None,
        "started_at": f.iso(incident.started_at),
        "resolved_at": f.iso(incident.resolved_at),
        "route": incident.route or None,
        "acknowledged_at": f.iso(incident.acknowledged_at),
        "acknowledged_by": incident.acknowledged_by or None,
        "assignee": incident.assignee or None,
        "snoozed_until": f.iso(incident.snoozed_until),
    }


def shown(found: Sequence[rows.Incident]) -> list[Document]:
    """The public form with how many alerts each has. One query for all."""
    counts = counted([incident.pk for incident in found])
    return [{**describe(incident), **counts[incident.pk].document()} for incident in found]


class Counts(NamedTuple):
    """Alerts of an incident."""

    firing: int = 0
    resolved: int = 0

    @property
    def all(self) -> int:
        return self.firing + self.resolved

    def document(self) -> Document:
        return {"alerts_firing": self.firing, "alerts_resolved": self.resolved}


def counted(keys: Sequence[int]) -> Mapping[int, Counts]:
    found = rows.Alert.objects.filter(incident__in=keys).values_list("incident", "state").order_by()
    states: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for key, state, count in found.annotate(Count("pk")):
        states[key][state] = count
    # The states are the fields' names.
    return {key: Counts(**states[key]) for key in keys}


def describe_entry(entry: rows.IncidentEntry) -> Document:
    return {"at": f.iso(entry.at), "kind": entry.kind, "text": entry.text, "details": entry.details}


def prune(before: datetime) -> int:
    """Forget incidents that ended before then, with their time lines and deliveries; answers how many."""
    ended = rows.Incident.objects.filter(state=rows.IncidentState.RESOLVED, resolved_at__lt=before)
    return ended.delete()[1].get("alerts.Incident", 0)
