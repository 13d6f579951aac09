"""The fleet: nodes, GPUs and engines, what is wrong with them, and their cordons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.models import NodeEvent
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.fleet.models import OPEN_STATES, Act, EngineKind, Node
from controlplane.fleet.services import ENGINES, NODES
from controlplane.web.access import page
from controlplane.web.choices import among
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.panels import shared_panel
from controlplane.web.shown import fleet as fleet_read
from controlplane.web.shown import xids
from controlplane.web.shown.acts import ActLine
from controlplane.web.shown.capacity import loss_of
from controlplane.web.shown.fleet_search import Wanted, shown_of
from controlplane.web.shown.topology import topology
from controlplane.web.shown.topology_picture import picture_of
from controlplane.web.views.review import Proposal, confirm
from wire.canonical import Document

EVENT_ROWS = 20
HISTORY_ROWS = 10
OPEN_ACT_ROWS = 20


@page()
def fleet(request: HttpRequest, caller: Caller) -> HttpResponse:
    wanted = Wanted.of(request)
    context = {
        "section": "fleet",
        **_now(wanted),
        **followed(request, caller),
        "curl_fleet": curl(request, "GET", "/nodes"),
    }
    return render(request, "web/fleet.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may = {"may_operate": caller.role.covers(Role.OPERATOR), "may_admin": caller.role.covers(Role.ADMIN)}
    wanted = Wanted.of(request)
    return shared_panel("web/parts/fleet.html", lambda: {**_now(wanted), **may}, (caller.role, wanted))


def _now(wanted: Wanted) -> dict[str, Any]:
    now = fleet_read.fleet()
    shown = shown_of(now, wanted)
    pools = among("pool", _("Pool"), _("all pools"), shown.pools, wanted.pool)
    return {"fleet_now": now, "shown": shown, "pools": pools}


@page()
def node(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    line, readings_missing = fleet_read.node_line(NODES.get(name))
    as_of = line.silent_since or timezone.now()
    links = topology(name, line.gpus, f.epoch_ms(as_of))
    context: dict[str, Any] = {
        "section": "fleet",
        "name": name,
        "node": line,
        "readings_missing": readings_missing,
        "topology": links,
        "matrix": links.matrix,
        "picture": picture_of(links) if links.is_told else None,
        "xids": xids.history(name, {gpu.uuid: gpu.index for gpu in line.gpus}),
        "open_acts": [ActLine(row) for row in _open_acts(line.row)],
        "events": NodeEvent.objects.filter(node=name).order_by("-at", "-pk")[:EVENT_ROWS],
        "history": AuditEntry.objects.filter(noun="node", key=name).order_by("-pk")[:HISTORY_ROWS],
        **followed(request, caller),
        "curl_node": curl(request, "GET", f"/nodes/{name}"),
        "found_engines": [
            _found_line(request, number, found, name) for number, found in enumerate(line.row.found_engines)
        ],
    }
    return render(request, "web/node.html", context)


def _open_acts(row: Node) -> QuerySet[Act]:
    """What its agent is asked to do and has not ended, the oldest first."""
    return row.acts.filter(state__in=OPEN_STATES).select_related("engine", "node").order_by("pk")[:OPEN_ACT_ROWS]


def _found_line(request: HttpRequest, number: int, found: Document, node: str) -> Document:
    """An engine that no configuration names, the form that adds it, and the call: NAME and POOL are a person's."""
    served_model = next(iter(found["models"]), "")
    known = {"url": found["url"], "kind": found["kind"], "node": node}
    row = {"name": "NAME", "pool": "POOL", **known, "served_model": served_model or "MODEL"}
    call = curl(request, "POST", "/engines", query=reason_of(request), body=row)
    return {
        **found,
        "kind_label": EngineKind(found["kind"]).label,
        "id": f"curl-found-{number}",
        "curl": call,
        "form": f"{reverse('web:new_engine')}?{urlencode({**known, 'served_model': served_model})}",
    }


@page(Role.OPERATOR)
def cordon_node(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = NODES.get(name)
    note = _("Its engines get no new requests, at every gateway. What runs there ends by itself.")
    return _confirm(
        request,
        caller,
        f"/nodes/{name}/cordon",
        lambda unit: NODES.cordon(unit, name),
        title=_("Cordon node %(name)s") % {"name": name},
        apply_label=_("Cordon the node"),
        note=note,
        node=name,
        dangerous=True,
        whom=loss_of(row.engines.all()),
    )


@page(Role.OPERATOR)
def uncordon_node(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    NODES.get(name)
    return _confirm(
        request,
        caller,
        f"/nodes/{name}/uncordon",
        lambda unit: NODES.uncordon(unit, name),
        title=_("Uncordon node %(name)s") % {"name": name},
        apply_label=_("Uncordon the node"),
        note=_(
            "Its engines get requests again. Engines that were cordoned themselves stay so. "
            "Incidents of its hardware that fire are resolved by it."
        ),
        node=name,
    )


@page(Role.OPERATOR)
def cordon_engine(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = ENGINES.get(name)
    note = _("It gets no new requests, at every gateway. What runs there ends by itself.")
    return _confirm(
        request,
        caller,
        f"/engines/{name}/cordon",
        lambda unit: ENGINES.cordon(unit, name),
        title=_("Cordon engine %(name)s") % {"name": name},
        apply_label=_("Cordon the engine"),
        note=note,
        node=row.node.name if row.node else "",
        dangerous=True,
        whom=loss_of([row]),
    )


@page(Role.OPERATOR)
def uncordon_engine(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = ENGINES.get(name)
    return _confirm(
        request,
        caller,
        f"/engines/{name}/uncordon",
        lambda unit: ENGINES.uncordon(unit, name),
        title=_("Uncordon engine %(name)s") % {"name": name},
        apply_label=_("Uncordon the engine"),
        note=_("It gets requests again, unless its node is cordoned."),
        node=row.node.name if row.node else "",
    )


def _confirm(
    request: HttpRequest,
    caller: Caller,
    path: str,
    action: Callable[[UnitOfWork], object],
    *,
    title: str,
    apply_label: str,
    note: str,
    node: str,
    dangerous: bool = False,
    whom: str = "",
) -> HttpResponse:
    """The review of a cordon. `path` is the REST call's; `node` the page that one comes from, empty: the fleet's."""
    trail = [(reverse("web:fleet"), _("Fleet"))]
    if node:
        trail.append((reverse("web:node", args=[node]), node))
    proposal = Proposal(
        section="fleet",
        title=title,
        apply_label=apply_label,
        action=action,
        trail=trail,
        done=trail[-1][0],
        curl=curl(request, "POST", path, query=reason_of(request)),
        note=note,
        dangerous=dangerous,
        whom=whom,
    )
    return confirm(request, caller, proposal)
