"""What-if runs: asked for, looked at while they run, cancelled; and their settings given to the pool."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Pool
from controlplane.fleet.services import POOLS
from controlplane.planner import what_if as service
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.what_if import WhatIfForm
from controlplane.web.shown import what_if as shown
from controlplane.web.views.comes_first import POOL, Asked, comes_first
from controlplane.web.views.review import Proposal, confirm, propose

ROWS_PER_PAGE = 50


@page()
def what_ifs(request: HttpRequest, caller: Caller) -> HttpResponse:
    start = number_in(request, "before")
    rows, following = service.page(ROWS_PER_PAGE, start)
    lines = [shown.line_of(row) for row in rows]
    context: dict[str, Any] = {
        "section": "what_ifs",
        "lines": lines,
        "paged": start is not None,
        "next_address": following and f"{reverse('web:what_ifs')}?{urlencode({'before': following})}",
        "curl_what_ifs": curl(request, "GET", "/what-if"),
    }
    return render(request, "web/what_ifs.html", context)


@page(Role.OPERATOR)
def new_what_if(request: HttpRequest, caller: Caller) -> HttpResponse:
    if not Pool.objects.exists():
        asked = Asked(
            "what_ifs", _("Try engine settings"), _trail(),
            _("Settings are tried on the load of a pool: a model comes first, then a pool of it, then its requests."),
            ("POST", "/what-if"), {"pool": "POOL"},
        )  # fmt: skip
        return comes_first(request, caller, POOL, asked)
    if request.method != "POST":
        return _form_page(request, WhatIfForm(initial={"pool": request.GET.get("pool", "")}))
    form = WhatIfForm(request.POST)
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form)
    values = form.values()

    def change(unit: UnitOfWork) -> None:
        service.begin(unit, values)

    proposal = Proposal(
        section="what_ifs",
        title=_("Try engine settings"),
        apply_label=_("Begin"),
        action=change,
        trail=_trail(),
        done=reverse("web:what_ifs"),
        curl=curl(request, "POST", "/what-if", query=reason_of(request), body=values),
        note=_("It is worked out in virtual time by a worker, and touches no engine."),
        carried=form,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _form_page(request: HttpRequest, form: WhatIfForm) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    line = curl(request, "POST", "/what-if", query=reason_of(request), body=begun(form))
    context = {"section": "what_ifs", "form": form, "trail": _trail(), "call_line": line}
    return render(request, "web/what_if_form.html", context, status=status)


@page()
def what_if(request: HttpRequest, caller: Caller, run_id: int) -> HttpResponse:
    run = service.get(run_id)
    report = run.report
    context = {
        "section": "what_ifs",
        "line": shown.line_of(run),
        "run": run,
        "report": report,
        "heats": shown.heats(report) if report else [],
        "peak": report and report["peak"],
        "load": report and shown.peak_load(report),
        "reasons": shown.reasons(report) if report else [],
        "calibration": report and report.get("calibration"),
        **followed(request, caller),
        "curl_what_if": curl(request, "GET", f"/what-if/{run_id}"),
        "trail": _trail(),
    }
    return render(request, "web/what_if.html", context)


@page(Role.OPERATOR)
def cancel_what_if(request: HttpRequest, caller: Caller, run_id: int) -> HttpResponse:
    service.get(run_id)

    def change(unit: UnitOfWork) -> None:
        service.cancel(unit, run_id)

    proposal = Proposal(
        section="what_ifs",
        title=_("Cancel this what-if"),
        apply_label=_("Cancel it"),
        leave_label=_("Back"),
        action=change,
        trail=_trail(),
        done=reverse("web:what_if", args=[run_id]),
        curl=curl(request, "POST", f"/what-if/{run_id}/cancel", query=reason_of(request)),
        note=_("It ends within seconds, and what its runs have found is not kept. No engine notices it."),
        dangerous=True,
    )
    return confirm(request, caller, proposal)


@page(Role.OPERATOR)
def use_what_if(request: HttpRequest, caller: Caller, run_id: int) -> HttpResponse:
    """Give the settings of the peak to the pool's engine arguments."""
    run = service.get(run_id)
    if not run.pool or not run.report or not run.report["peak"]:
        raise Conflict(_("This what-if has no peak, or no pool that could take it."))
    arguments = {**POOLS.get(run.pool).engine_arguments, **shown.engine_arguments(run.report)}

    def change(unit: UnitOfWork) -> None:
        POOLS.update(unit, run.pool, {"engine_arguments": arguments})

    proposal = Proposal(
        section="what_ifs",
        title=_("Use these settings in pool %(name)s") % {"name": run.pool},
        apply_label=_("Apply"),
        action=change,
        trail=[*_trail(), (reverse("web:what_if", args=[run_id]), str(run))],
        done=reverse("web:what_if", args=[run_id]),
        curl=curl(
            request, "PATCH", f"/pools/{run.pool}", query=reason_of(request), body={"engine_arguments": arguments}
        ),
        note=_("Engines that run keep what they were started with, until a rollout or a restart gives them these."),
    )
    return confirm(request, caller, proposal)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:what_ifs"), _("What-if"))]
