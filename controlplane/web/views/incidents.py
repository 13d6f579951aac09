"""Incidents: what fires, what happened when, who was told, and the end of one by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.models import Delivery, Incident, IncidentEntry, IncidentState, Receiver, Severity
from controlplane.alerts.services import alerts, incident_acts
from controlplane.alerts.services import evidence as evidence_read
from controlplane.alerts.services import incidents as service
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Node, Pool
from controlplane.web.access import page
from controlplane.web.asked import number_in, text_in
from controlplane.web.choices import among
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.alert import AssignForm, CommentForm, NounForm, SnoozeForm
from controlplane.web.shown import alert_rules
from controlplane.web.shown import incidents as incidents_read
from controlplane.web.shown.spoken import spoken
from controlplane.web.views.noun_pages import Frame, ask
from controlplane.web.views.policy import policy_card
from controlplane.web.views.review import Proposal, confirm

# More than one incident has unless something flaps; the REST call gives all.
ENTRY_ROWS = 500
ALERT_ROWS, DELIVERY_ROWS = 50, 200
# Whether somebody has seen it, as REST has it.
SEEN = ("true", "false")
EVENT_ROWS = 100


class EntryLine(NamedTuple):
    """A line of the time line, and the revision that its change became, once it is published."""

    entry: IncidentEntry
    revision: int | None


@page()
def incidents(request: HttpRequest, caller: Caller) -> HttpResponse:
    given = {name: text_in(request, name).strip() for name in ("state", "node", "severity", "pool", "acknowledged")}
    start = number_in(request, "before")
    for name, known in (("state", IncidentState.values), ("severity", Severity.values), ("acknowledged", SEEN)):
        given[name] = given[name] if given[name] in known else ""
    found = incidents_read.page(_wanted(given), start)
    wanted = {name: value for name, value in given.items() if value}
    following = found.before and f"{reverse('web:incidents')}?{urlencode({**wanted, 'before': found.before})}"
    context: dict[str, Any] = {
        "section": "incidents",
        "found": found,
        "wanted": given,
        "filtered": bool(wanted),
        "states": IncidentState.choices,
        "severities": Severity.choices,
        "nodes": among("node", _("Node"), _("all nodes"), Node.objects.values_list("name", flat=True), given["node"]),
        "pools": among("pool", _("Pool"), _("all pools"), Pool.objects.values_list("name", flat=True), given["pool"]),
        "paged": start is not None,
        "receivers_on": Receiver.objects.filter(enabled=True).count(),
        "next_address": following,
        "curl_incidents": curl(request, "GET", "/incidents", query=wanted),
        **policy_card(request),
    }
    return render(request, "web/incidents.html", context)


def _wanted(given: Mapping[str, str]) -> service.Wanted:
    seen = given["acknowledged"]
    names = ("state", "node", "severity", "pool")
    return service.Wanted(**{name: given[name] for name in names}, acknowledged=seen == "true" if seen else None)


@page()
def incident(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    row = service.get(incident_id)
    context: dict[str, Any] = {
        "section": "incidents",
        "incident": row,
        "line": incidents_read.lines_of([row])[0],
        "entries": _entries(row),
        "labels": sorted(row.labels.items()),
        "alerts": alerts.first_of(row, ALERT_ROWS),
        "counts": service.counted([row.pk])[row.pk],
        "alerts_shown": ALERT_ROWS,
        "annotations": sorted(row.annotations.items()),
        "deliveries": row.deliveries.select_related("receiver").order_by("-created_at", "receiver__name")[
            :DELIVERY_ROWS
        ],
        "events": row.events.order_by("-at", "-pk")[:EVENT_ROWS],
        "curl_incident": curl(request, "GET", f"/incidents/{incident_id}"),
        "curl_evidence": curl(request, "GET", f"/incidents/{incident_id}/evidence"),
    }
    return render(request, "web/incident.html", context)


def _deliveries(row: Incident) -> QuerySet[Delivery]:
    """The last written first: a long incident is repeated many times."""
    return row.deliveries.select_related("receiver").order_by("-created_at", "receiver__name")[:DELIVERY_ROWS]


def _entries(row: Incident) -> list[EntryLine]:
    entries = list(row.entries.order_by("at", "pk")[:ENTRY_ROWS])
    changes = {entry.details["change_id"] for entry in entries if entry.details.get("change_id")}
    published = AuditEntry.objects.filter(change_id__in=changes, revision__isnull=False)
    revisions: dict[uuid.UUID, int | None] = dict(published.values_list("change_id", "revision"))
    by_change = {str(change): revision for change, revision in revisions.items()}
    return [
        EntryLine(entry, entry.details.get("revision") or by_change.get(entry.details.get("change_id", "")))
        for entry in entries
    ]


@page()
def evidence(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    """A part of the incident's page, read apart: it asks the metric store."""
    row = service.get(incident_id)
    now = timezone.now()
    start, end = evidence_read.span_of(row, now)
    context = {
        "charts": incidents_read.charts_of(row, now),
        "chart_width": alert_rules.CHART_WIDTH,
        "chart_height": alert_rules.CHART_HEIGHT,
        "concerned": evidence_read.concerned(row, now),
        "drawn_from": start,
        "drawn_to": end,
    }
    return render(request, "web/parts/evidence.html", context)


@page(Role.OPERATOR)
def acknowledge(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    frame = _frame(incident_id, _("Acknowledge"))
    proposal = Proposal(
        section="incidents",
        title=frame.title,
        apply_label=_("Acknowledge"),
        action=lambda unit: incident_acts.acknowledge(unit, incident_id, timezone.now()),
        trail=frame.trail,
        done=frame.done,
        curl=curl(request, "POST", f"/incidents/{incident_id}/acknowledge", query=reason_of(request)),
        note=_("Others see that you have seen it, and nobody is told the same again. What is new or graver is told."),
    )
    return confirm(request, caller, proposal)


@page(Role.OPERATOR)
def assign(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    row = service.get(incident_id)
    form = AssignForm(request.POST or None, initial={"assignee": row.assignee or caller.actor.name})
    return _ask_of(request, caller, incident_id, "assign", _("Assign"), form, incident_acts.assign)


@page(Role.OPERATOR)
def snooze(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    form = SnoozeForm(request.POST or None, initial=SnoozeForm.suggested())
    return _ask_of(request, caller, incident_id, "snooze", _("Snooze"), form, incident_acts.snooze)


@page(Role.OPERATOR)
def comment(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    form = CommentForm(request.POST or None)
    return _ask_of(request, caller, incident_id, "comment", _("Comment"), form, incident_acts.comment)


Act = Callable[[UnitOfWork, int, Mapping[str, Any], datetime], Incident]


def _ask_of(
    request: HttpRequest, caller: Caller, incident_id: int, verb: str, title: str, form: NounForm, act: Act
) -> HttpResponse:
    frame = _frame(incident_id, title)

    def change(unit: UnitOfWork) -> None:
        act(unit, incident_id, form.values(), timezone.now())

    return ask(request, caller, form, frame, change, ("POST", f"/incidents/{incident_id}/{verb}"), form.values)


def _frame(incident_id: int, title: str) -> Frame:
    row, back = service.get(incident_id), reverse("web:incident", args=[incident_id])
    return Frame("incidents", title, [(reverse("web:incidents"), _("Incidents")), (back, spoken(row.title))], back)


@page(Role.OPERATOR)
def resolve_incident(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    row = service.get(incident_id)

    def change(unit: UnitOfWork) -> None:
        incident_acts.resolve(unit, incident_id, timezone.now())

    back = reverse("web:incident", args=[incident_id])
    proposal = Proposal(
        section="incidents",
        title=_("Resolve “%(title)s”") % {"title": spoken(row.title)},
        apply_label=_("Resolve"),
        action=change,
        trail=[(reverse("web:incidents"), _("Incidents")), (back, spoken(row.title))],
        done=back,
        curl=curl(request, "POST", f"/incidents/{incident_id}/resolve", query=reason_of(request)),
        note=_(
            "Its receivers are told that it is over. A cordoned node stays cordoned: uncordon it on its own page. "
            "The same fault opens a new incident."
        ),
    )
    return confirm(request, caller, proposal)
