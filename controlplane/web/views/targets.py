"""Targets: who runs the configuration, how one joins, how one is shut out."""

from __future__ import annotations

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane import settings_rows
from controlplane.core import enrolment
from controlplane.core.changes import UnitOfWork, unit_of_work
from controlplane.core.errors import NotFound, Refused
from controlplane.core.models import Role, Target
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.convergence import target_lines
from controlplane.web.curl import curl
from controlplane.web.forms import JoinTokenForm
from controlplane.web.panels import shared_panel
from controlplane.web.rendering import render_page
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.tenants import REASON_HERE


@page()
def targets(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {
        "section": "targets",
        "rows": target_lines(),
        "curl_targets": curl(request, "GET", "/config/convergence"),
    }
    return render_page(request, "web/targets.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may_admin = caller.role.covers(Role.ADMIN)
    return shared_panel("web/parts/targets.html", lambda: {"rows": target_lines(), "may_admin": may_admin}, may_admin)


@page(Role.ADMIN)
def join(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = JoinTokenForm(request.POST or None)
    minutes = settings_rows.JOIN_TOKEN_MINUTES.read()
    if form.is_valid():
        kind, name = form.cleaned_data["kind"], form.cleaned_data["name"]
        try:
            with unit_of_work(caller.actor, form.cleaned_data["reason"]) as unit:
                _row, secret = enrolment.create_join_token(unit, kind, name)
        except Refused as refused:
            form.take_refusal(refused)
        else:
            context = {
                "section": "targets",
                "title": _("New join token"),
                "secret": secret,
                "done": reverse("web:targets"),
                "hint": _("Start the process with it; it appears under Targets as soon as it has joined."),
            }
            return render_page(request, "web/secret.html", context)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    line = curl(request, "POST", "/targets/join-tokens", query=REASON_HERE, body={"kind": "gateway"})
    form_context = {"section": "targets", "form": form, "minutes": minutes, "curl_join": line}
    return render_page(request, "web/join.html", form_context, status=status)


@page(Role.ADMIN)
def revoke(request: HttpRequest, caller: Caller, target_id: int) -> HttpResponse:
    target = Target.objects.filter(pk=target_id, revoked_at=None).first()
    if target is None:
        raise NotFound(f"there is no target {target_id}")

    def change(unit: UnitOfWork) -> None:
        enrolment.revoke(unit, target_id)

    back = reverse("web:targets")
    proposal = Proposal(
        section="targets",
        title=_("Revoke %(kind)s %(name)s") % {"kind": target.get_kind_display(), "name": target.name},
        apply_label=_("Revoke"),
        action=change,
        back=back,
        back_label=_("Targets"),
        done=back,
        curl=curl(request, "POST", f"/targets/{target_id}/revoke", query=REASON_HERE),
        note=_(
            "Its stream is closed at once and its token is worth nothing. It goes on with the configuration it has, "
            "and must join anew to get another."
        ),
        dangerous=True,
    )
    return confirm(request, caller, proposal)
