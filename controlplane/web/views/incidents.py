"""Incidents: what fires, what happened when, who was told, and the end of one by hand."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.models import Incident, IncidentEntry, IncidentState, Receiver
from controlplane.alerts.services import incidents as service
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Node
from controlplane.web import incidents as incidents_read
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.views.policy import policy_card
from controlplane.web.views.review import Proposal, confirm

# More than one incident has unless something flaps; the REST call gives all.
ENTRY_ROWS = 500
EVENT_ROWS = 100


class EntryLine(NamedTuple):
    """A line of the time line, and the revision that its change became, once it is published."""

    entry: IncidentEntry
    revision: int | None


@page()
def incidents(request: HttpRequest, caller: Caller) -> HttpResponse:
    state, node, before = (request.GET.get(name, "").replace("\0", "") for name in ("state", "node", "before"))
    state = state if state in IncidentState.values else ""
    start = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    found = incidents_read.page(state, node, start)
    wanted = {name: value for name, value in (("state", state), ("node", node)) if value}
    following = found.before and f"{reverse('web:incidents')}?{urlencode({**wanted, 'before': found.before})}"
    context: dict[str, Any] = {
        "section": "incidents",
        "found": found,
        "state": state,
        "node": node,
        "states": IncidentState.choices,
        "nodes": Node.objects.order_by("name").values_list("name", flat=True),
        "paged": start is not None,
        "receivers_on": Receiver.objects.filter(enabled=True).count(),
        "next_address": following,
        "curl_incidents": curl(request, "GET", "/incidents", query=wanted),
        **policy_card(request),
    }
    return render(request, "web/incidents.html", context)


@page()
def incident(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    row = service.get(incident_id)
    context: dict[str, Any] = {
        "section": "incidents",
        "incident": row,
        "line": incidents_read.lines_of([row])[0],
        "entries": _entries(row),
        "labels": sorted(row.labels.items()),
        "annotations": sorted(row.annotations.items()),
        "deliveries": row.deliveries.select_related("receiver").order_by("created_at", "receiver__name"),
        "events": row.events.order_by("-at", "-pk")[:EVENT_ROWS],
        "curl_incident": curl(request, "GET", f"/incidents/{incident_id}"),
    }
    return render(request, "web/incident.html", context)


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


@page(Role.OPERATOR)
def resolve_incident(request: HttpRequest, caller: Caller, incident_id: int) -> HttpResponse:
    row = service.get(incident_id)

    def change(unit: UnitOfWork) -> None:
        service.resolve_by_hand(unit, incident_id, timezone.now())

    back = reverse("web:incident", args=[incident_id])
    proposal = Proposal(
        section="incidents",
        title=_("Resolve “%(title)s”") % {"title": row.title},
        apply_label=_("Resolve"),
        action=change,
        trail=[(reverse("web:incidents"), _("Incidents")), (back, row.title)],
        done=back,
        curl=curl(request, "POST", f"/incidents/{incident_id}/resolve", query=reason_of(request)),
        note=_(
            "Its receivers are told that it is over. A cordoned node stays cordoned: uncordon it on its own page. "
            "The same fault opens a new incident."
        ),
    )
    return confirm(request, caller, proposal)
