"""REST of incidents: what fires, what happened when, and what people do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Body, Query, Router

from controlplane.alerts import models as rows
from controlplane.alerts.services import alerts, deliveries, events, evidence, incident_acts, incidents
from controlplane.alerts.services.incident_acts import AssignFields, CommentFields, SnoozeFields
from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS, PAGE_ROWS_MAX
from controlplane.core.preconditions import tagged
from controlplane.core.rest import After, Filter, Id, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router(tags=["incidents"])

State = Annotated[Literal["", "firing", "resolved"], Query(description="Empty: all.")]
Severity = Annotated[Literal["", "info", "warning", "critical"], Query(description="Empty: all.")]
Acknowledged = Annotated[bool | None, Query(description="Whether somebody has seen it; absent: all.")]
Assignment = Annotated[dict[str, Any], ShownAs(AssignFields), Body()]
Snooze = Annotated[dict[str, Any], ShownAs(SnoozeFields), Body()]
Comment = Annotated[dict[str, Any], ShownAs(CommentFields), Body()]


@router.get("/incidents", auth=viewer, response=Page, summary="List incidents, newest first")
def list_incidents(
    request: HttpRequest,
    state: State = "",
    node: Filter = "",
    severity: Severity = "",
    pool: Filter = "",
    acknowledged: Acknowledged = None,
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    """`alerts_firing` and `alerts_resolved` count the alerts of each."""
    wanted = incidents.Wanted(state=state, node=node, severity=severity, pool=pool, acknowledged=acknowledged)
    found, following = incidents.page(wanted, limit=limit, after=after)
    return Page(items=incidents.shown(found), next=following)


@router.get("/incidents/{incident_id}", auth=viewer, response=dict[str, Any], summary="Read one")
def read_incident(request: HttpRequest, incident_id: Id) -> Document:
    """With its time line, the oldest line first, its events, the last received first, its deliveries, and the first of
    its alerts; `GET …/alerts` has all of them."""
    incident = incidents.get(incident_id)
    return tagged(request, incidents.describe(incident), _whole(incident))


@router.get("/incidents/{incident_id}/alerts", auth=viewer, response=Page, summary="List an incident's alerts")
def list_alerts(
    request: HttpRequest, incident_id: Id, state: State = "", limit: Limit = PAGE_ROWS, after: After = 0
) -> Page:
    """In the order in which they came. `muted_by`: why nobody is told of one just now."""
    found, following = alerts.page(incidents.get(incident_id), state=state, limit=limit, after=after)
    return Page(items=[alerts.describe(row) for row in found], next=following)


@router.get("/incidents/{incident_id}/evidence", auth=viewer, response=dict[str, Any], summary="Read the evidence")
def read_evidence(request: HttpRequest, incident_id: Id) -> Document:
    """What its rules measured around its start, as series; the pools that it concerns, and the tenants who had requests
    there. `error` of a chart says why it has no series."""
    return evidence.of(incidents.get(incident_id), timezone.now())


@router.post("/incidents/{incident_id}/resolve", auth=operator, response=WriteAnswer, summary="End an incident")
def resolve_incident(request: HttpRequest, incident_id: Id, options: Options) -> WriteAnswer:
    """Its receivers are told. A second time changes nothing. A node that is cordoned stays so."""
    return _act(request, options, lambda unit: incident_acts.resolve(unit, incident_id, timezone.now()))


@router.post("/incidents/{incident_id}/acknowledge", auth=operator, response=WriteAnswer, summary="Acknowledge one")
def acknowledge_incident(request: HttpRequest, incident_id: Id, options: Options) -> WriteAnswer:
    """Somebody has seen it: what was said is not repeated, what is new or graver is told. Receivers that can take it
    are told who. A second time changes nothing; 409 `resolved` where it has ended."""
    return _act(request, options, lambda unit: incident_acts.acknowledge(unit, incident_id, timezone.now()))


@router.post("/incidents/{incident_id}/assign", auth=operator, response=WriteAnswer, summary="Say whose it is")
def assign_incident(request: HttpRequest, incident_id: Id, options: Options, body: Assignment) -> WriteAnswer:
    return _act(request, options, lambda unit: incident_acts.assign(unit, incident_id, body, timezone.now()))


@router.post("/incidents/{incident_id}/snooze", auth=operator, response=WriteAnswer, summary="Snooze one")
def snooze_incident(request: HttpRequest, incident_id: Id, options: Options, body: Snooze) -> WriteAnswer:
    """Nobody is told of it until then, but of its end. Then its receivers are told again, if it still fires."""
    return _act(request, options, lambda unit: incident_acts.snooze(unit, incident_id, body, timezone.now()))


@router.post("/incidents/{incident_id}/comment", auth=operator, response=WriteAnswer, summary="Comment on one")
def comment_on_incident(request: HttpRequest, incident_id: Id, options: Options, body: Comment) -> WriteAnswer:
    """A line of its time line. No receiver is told."""
    return _act(request, options, lambda unit: incident_acts.comment(unit, incident_id, body, timezone.now()))


def _act(request: HttpRequest, options: Options, act: Callable[[UnitOfWork], rows.Incident]) -> WriteAnswer:
    return perform(request, options, lambda unit: incidents.describe(act(unit)))


def _whole(incident: rows.Incident) -> Document:
    (shown,) = incidents.shown([incident])
    # Of one that goes on for weeks, the last lines and messages: what is of now is among them.
    lines = list(incident.entries.order_by("-at", "-pk")[:PAGE_ROWS_MAX])
    told = incident.events.order_by("-pk")[:PAGE_ROWS_MAX]
    sent = list(incident.deliveries.select_related("receiver").order_by("-created_at", "-pk")[:PAGE_ROWS_MAX])
    return {
        **shown,
        "alerts": [alerts.describe(row) for row in alerts.first_of(incident, PAGE_ROWS)],
        "entries": [incidents.describe_entry(entry) for entry in reversed(lines)],
        "events": [events.describe(event) for event in told],
        "deliveries": [deliveries.describe(delivery) for delivery in reversed(sent)],
    }
