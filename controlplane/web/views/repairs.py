"""Repairs of nodes: what is being done about faults of the hardware, and what people can do about that."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Engine
from controlplane.remediation import services
from controlplane.remediation.causes import REPAIRS
from controlplane.remediation.models import OPEN_STATES, UNMENDED_STATES, Mode, Remediation, State
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.labels import action_label
from controlplane.web.shown.capacity import loss_of
from controlplane.web.views.review import Proposal, confirm

ROWS_PER_PAGE = 50


def _line(row: Remediation) -> dict[str, Any]:
    ended_unrepaired = row.state in (State.OBSERVED, *UNMENDED_STATES)
    return {
        "row": row,
        "may_be_cancelled": row.state in (*OPEN_STATES, *UNMENDED_STATES),
        "may_be_begun": ended_unrepaired and row.action in REPAIRS,
    }


@page()
def repairs(request: HttpRequest, caller: Caller) -> HttpResponse:
    before = request.GET.get("before", "")
    after = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else 0
    rows, following = services.page(limit=ROWS_PER_PAGE, after=after)
    context = {
        "section": "repairs",
        "lines": [_line(row) for row in rows],
        "policy": services.policy(),
        "acts": services.policy().mode == Mode.ACT,
        "paged": bool(after),
        "next_address": following and f"{reverse('web:repairs')}?before={following}",
        **followed(request, caller),
        "curl_repairs": curl(request, "GET", "/remediations"),
    }
    return render(request, "web/repairs.html", context)


@page(Role.OPERATOR)
def cancel_repair(request: HttpRequest, caller: Caller, remediation_id: int) -> HttpResponse:
    row = services.get(remediation_id)
    return _confirmed(
        request,
        caller,
        title=_("Cancel the repair of %(node)s") % {"node": row.node},
        label=_("Cancel it"),
        action=lambda unit: services.cancel(unit, remediation_id),
        path=f"/remediations/{remediation_id}/cancel",
        note=_("Nothing more is done. Its engines are put back; a cordon of the node stays, for you to take back."),
    )


@page(Role.OPERATOR)
def begin_repair(request: HttpRequest, caller: Caller, remediation_id: int) -> HttpResponse:
    row = services.get(remediation_id)
    note = _("Once the node is cordoned its engines are drained and stopped, and then started again.")
    loss = loss_of(Engine.objects.filter(node__name=row.node).select_related("node", "pool"))
    return _confirmed(
        request,
        caller,
        title=_("Repair %(node)s: %(action)s") % {"node": row.node, "action": action_label(row.action)},
        label=_("Begin it"),
        action=lambda unit: services.act_on(unit, remediation_id),
        path=f"/remediations/{remediation_id}/act",
        note=note,
        whom=loss,
    )


@page(Role.OPERATOR)
def reset_repair_breaker(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _confirmed(
        request,
        caller,
        title=_("Let repairs begin again"),
        label=_("Reset the breaker"),
        action=services.reset_breaker,
        path="/remediation-policy/reset-breaker",
        note=_("Repairs that are held begin, as many as the policy allows within its window."),
    )


@page(Role.ADMIN)
def set_repair_mode(request: HttpRequest, caller: Caller, mode: str) -> HttpResponse:
    if mode not in Mode.values:
        raise Http404
    act = mode == Mode.ACT
    return _confirmed(
        request,
        caller,
        title=_("Let the program repair nodes") if act else _("Have the program observe only"),
        label=_("Let it act") if act else _("Observe only"),
        action=lambda unit: services.change_policy(unit, {"mode": mode}),
        path="/remediation-policy",
        method="PATCH",
        body={"mode": mode},
        note=_(
            "Nodes that are cordoned for a fault of their hardware are drained, and a GPU reset or the node rebooted, "
            "where the node's own policy allows that."
        )
        if act
        else _("Repairs under way go on; of new faults it is only said what would be done."),
        dangerous=act,
    )


def _confirmed(
    request: HttpRequest,
    caller: Caller,
    *,
    title: str,
    label: str,
    action: Any,
    path: str,
    note: str,
    method: str = "POST",
    body: dict[str, Any] | None = None,
    dangerous: bool = True,
    whom: str = "",
) -> HttpResponse:
    back = reverse("web:repairs")

    def act(unit: UnitOfWork) -> None:
        action(unit)

    proposal = Proposal(
        section="repairs", title=title, apply_label=label, leave_label=_("Back"), action=act,
        trail=[(back, _("Repairs"))], done=back,
        curl=curl(request, method, path, query=reason_of(request), body=body), note=note, dangerous=dangerous,
        whom=whom,
    )  # fmt: skip
    return confirm(request, caller, proposal)
