"""What people do about an incident. Each is a part of a unit of work, audited, and a line of the time line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.receivers.registry import channel_of
from controlplane.alerts.services import alerts, deliveries, incidents, notifying
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.models import User
from wire.problems import Problem

COMMENT_MAX_CHARACTERS = 1000
# Beyond this a snooze is a silence, which is listed with its owner and its reason.
SNOOZE_MAX = timedelta(days=30)
_FIRING = rows.IncidentState.FIRING


class AssignFields(f.Fields):
    """`assignee`: the name of a person who logs in here; null: nobody's any more."""

    assignee: Annotated[f.Text, Field(max_length=150)] | None


class SnoozeFields(f.Fields):
    """`until`: a time within 30 days from now; null: receivers are told again from now on."""

    until: f.Moment | None


class CommentFields(f.Fields):
    text: Annotated[f.Text, Field(min_length=1, max_length=COMMENT_MAX_CHARACTERS)]


def end(incident: rows.Incident, at: datetime, text: str) -> bool:
    """End it with all of its alerts. False where it has ended already."""
    lock_alerts()
    firing = incident.alerts.filter(state=_FIRING).values_list("pk", flat=True)
    ended = bool(alerts.resolve_alerts(list(firing), at, text))
    incident.refresh_from_db()
    return ended


def resolve(unit: UnitOfWork, incident_id: int, at: datetime) -> rows.Incident:
    """End it for a person's reason. A second time changes nothing. Raises NotFound."""
    incident = incidents.get(incident_id)
    before = incidents.describe(incident)
    if end(incident, at, f"resolved by {unit.actor.name}: {unit.reason}"):
        unit.record(incidents.NOUN, str(incident.pk), before, incidents.describe(incident))
    return incident


def acknowledge(unit: UnitOfWork, incident_id: int, at: datetime) -> rows.Incident:
    """Somebody has seen it: nobody is told the same again. A second time changes nothing. Raises NotFound, Conflict."""
    incident = _firing(incident_id)
    if incident.acknowledged_at is not None:
        return incident
    changed = {"acknowledged_at": at, "acknowledged_by": unit.actor.name}
    _write(unit, incident, changed, "acknowledged", f"acknowledged by {unit.actor.name}: {unit.reason}", at)
    receivers = rows.Receiver.objects.filter(
        pk__in=incident.told.filter(status=_FIRING).values("receiver"), enabled=True
    )
    wanted = [each for each in receivers if channel_of(each.kind).takes_acknowledged]
    if wanted:
        deliveries.enqueue(incident, wanted, occasion=rows.Occasion.ACKNOWLEDGED, status=incident.state)
    return incident


def assign(unit: UnitOfWork, incident_id: int, fields: Mapping[str, Any], at: datetime) -> rows.Incident:
    """Say whose it is. Raises NotFound, Conflict, Refused."""
    assignee = f.read(AssignFields, fields).assignee or ""
    if assignee and not User.objects.filter(username=assignee, is_active=True).exists():
        f.refuse_if([Problem("/assignee", "reference", f"no active person is called {assignee!r}")])
    incident = _firing(incident_id)
    whom = f"assigned to {assignee}" if assignee else "assigned to nobody"
    _write(unit, incident, {"assignee": assignee}, "assigned", f"{whom} by {unit.actor.name}: {unit.reason}", at)
    return incident


def snooze(unit: UnitOfWork, incident_id: int, fields: Mapping[str, Any], at: datetime) -> rows.Incident:
    """Tell nobody of it until then, but of its end. Raises NotFound, Conflict, Refused."""
    until = f.read(SnoozeFields, fields).until
    if until is not None and not at < until <= at + SNOOZE_MAX:
        f.refuse_if([Problem("/until", "range", f"give a time within {SNOOZE_MAX.days} days from now")])
    incident = _firing(incident_id)
    said = f"snoozed until {until:%Y-%m-%d %H:%M} UTC" if until else "no longer snoozed, said"
    text = f"{said} by {unit.actor.name}: {unit.reason}"
    _write(unit, incident, {"snoozed_until": until}, "snoozed", text, at)
    notifying.wake(at, pk=incident.pk)
    return incident


def comment(unit: UnitOfWork, incident_id: int, fields: Mapping[str, Any], at: datetime) -> rows.Incident:
    """Add a person's words to the time line, also of one that has ended. Raises NotFound, Refused."""
    text = f.read(CommentFields, fields).text
    incident = incidents.get(incident_id)
    incidents.note(incident, "comment", f"{unit.actor.name}: {text}", at, {"by": unit.actor.name})
    unit.record(incidents.NOUN, str(incident.pk), {"comment": None}, {"comment": text})
    return incident


def _firing(incident_id: int) -> rows.Incident:
    """Its row, held. Raises NotFound, Conflict where it has ended."""
    lock_alerts()
    incident = rows.Incident.objects.select_for_update(no_key=True).filter(pk=incident_id).first()
    if incident is None:
        return incidents.get(incident_id)
    if incident.state != _FIRING:
        raise Conflict("the incident has ended; the next one of its group is another", code="resolved")
    return incident


def _write(
    unit: UnitOfWork, incident: rows.Incident, changed: Mapping[str, Any], kind: str, text: str, at: datetime
) -> None:
    before = incidents.describe(incident)
    for name, value in changed.items():
        setattr(incident, name, value)
    incident.save(update_fields=list(changed))
    after = incidents.describe(incident)
    if after != before:
        incidents.note(incident, kind, text, at, {"by": unit.actor.name})
        unit.record(incidents.NOUN, str(incident.pk), before, after)
