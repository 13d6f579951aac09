"""The only writer of incidents and their time lines. Every call but `page` runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.db import IntegrityError, transaction

from controlplane.alerts import models as rows
from controlplane.alerts.health import TITLE_CHARACTERS
from controlplane.alerts.services import deliveries
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document, content_hash

NOUN = "incident"
_TEXT_CHARACTERS, _NODE_CHARACTERS = 2000, 63


def fingerprint(labels: Mapping[str, str]) -> str:
    """What makes two signs the same cause: SHA-256 of the labels' canonical JSON, in hex."""
    return content_hash(dict(labels))


def open_incident(
    *,
    labels: dict[str, str],
    source: Literal["event", "rule"],
    severity: str,
    title: str,
    annotations: dict[str, str],
    at: datetime,
    text: str,
) -> tuple[rows.Incident, bool]:
    """The firing incident of these labels, its row held, and whether it is new.

    A new one starts at `at` and its receivers are told. One that fires already takes the higher severity; receivers
    that it was too mild for until now are told then.
    """
    digest = fingerprint(labels)
    # Of two that open it at once, on PostgreSQL, one makes it, and the other waits for that and finds it.
    while (incident := _firing(digest)) is None:
        incident = rows.Incident(
            fingerprint=digest,
            source=source,
            severity=severity,
            title=title[:TITLE_CHARACTERS],
            labels=labels,
            annotations=annotations,
            started_at=at,
            node=labels.get("node", "")[:_NODE_CHARACTERS],
        )
        if _made(incident):
            note(incident, "started", text, at)
            deliveries.enqueue(incident, "firing")
            return incident, True
    if rows.Severity(severity).rank > rows.Severity(incident.severity).rank:
        _raise_severity(incident, severity, at)
    return incident, False


def _made(incident: rows.Incident) -> bool:
    """False where one of its fingerprint fires since."""
    try:
        with transaction.atomic():
            incident.save(force_insert=True)
    except IntegrityError:
        return False
    return True


def _firing(digest: str) -> rows.Incident | None:
    firing = rows.Incident.objects.filter(fingerprint=digest, state=rows.IncidentState.FIRING)
    return firing.select_for_update(no_key=True).first()


def _raise_severity(incident: rows.Incident, severity: str, at: datetime) -> None:
    note(incident, "severity", f"{incident.severity} becomes {severity}", at, {"severity": severity})
    incident.severity = severity
    incident.save(update_fields=["severity"])
    deliveries.enqueue(incident, "firing")


def note(
    incident: rows.Incident, kind: str, text: str, at: datetime, details: Mapping[str, Any] | None = None
) -> rows.IncidentEntry:
    """Add a line to the time line."""
    return rows.IncidentEntry.objects.create(
        incident=incident, at=at, kind=kind, text=text[:_TEXT_CHARACTERS], details=dict(details or {})
    )


def resolve_incident(incident: rows.Incident, at: datetime, text: str) -> bool:
    """End it and tell its receivers. False where it has ended already. It never ends before it started."""
    at = max(at, incident.started_at)
    firing = rows.Incident.objects.filter(pk=incident.pk, state=rows.IncidentState.FIRING)
    # Of two that end it at once, one changes the row.
    if not firing.update(state=rows.IncidentState.RESOLVED, resolved_at=at):
        return False
    incident.state, incident.resolved_at = rows.IncidentState.RESOLVED, at
    note(incident, "resolved", text, at)
    deliveries.enqueue(incident, "resolved")
    return True


def resolve_by_hand(unit: UnitOfWork, incident_id: int, at: datetime) -> rows.Incident:
    """End it for a person's reason. A second time changes nothing. Raises NotFound."""
    incident = get(incident_id)
    before = describe(incident)
    if resolve_incident(incident, at, f"resolved by {unit.actor.name}: {unit.reason}"):
        unit.record(NOUN, str(incident.pk), before, describe(incident))
    return incident


def firing_of(labels: Mapping[str, str]) -> rows.Incident | None:
    """The firing incident of these labels, its row held until the transaction ends."""
    return _firing(fingerprint(labels))


def firing_on(node: str) -> list[rows.Incident]:
    """What fires on a node, by events and by rules, the oldest first.

    Not held: who evaluates a rule holds several of them too, in another order.
    """
    return list(rows.Incident.objects.filter(node=node, state=rows.IncidentState.FIRING).order_by("pk"))


def get(incident_id: int) -> rows.Incident:
    """Raises NotFound."""
    incident = rows.Incident.objects.filter(pk=incident_id).first()
    if incident is None:
        raise NotFound(f"there is no incident {incident_id}")
    return incident


def page(
    *, state: str = "", node: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[rows.Incident], int | None]:
    """Incidents, newest first; `after` is the last of the page before. Empty filters take all."""
    wanted = {name: value for name, value in (("state", state), ("node", node)) if value}
    incidents = rows.Incident.objects.filter(**wanted)
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
    }


def describe_entry(entry: rows.IncidentEntry) -> Document:
    return {"at": f.iso(entry.at), "kind": entry.kind, "text": entry.text, "details": entry.details}


def prune(before: datetime) -> int:
    """Forget incidents that ended before then, with their time lines and deliveries; answers how many."""
    ended = rows.Incident.objects.filter(state=rows.IncidentState.RESOLVED, resolved_at__lt=before)
    return ended.delete()[1].get("alerts.Incident", 0)
