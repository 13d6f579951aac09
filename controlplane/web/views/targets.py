"""Targets: who runs the configuration, how one joins, how one is shut out."""

from __future__ import annotations

import shlex
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane import settings_rows
from controlplane.configs.convergence import State
from controlplane.core import enrolment
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import Role, Target, TargetKind
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.convergence import followed, neediest_first, tally, target_lines
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import JoinTokenForm
from controlplane.web.panels import shared_panel
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.secret import secret_page

# More than a person reads; the REST call gives all.
ROWS = 200


@page()
def targets(request: HttpRequest, caller: Caller) -> HttpResponse:
    state = _state(request)
    context: dict[str, Any] = {
        "section": "targets",
        **_lines(state),
        "state": state,
        "curl_targets": curl(request, "GET", "/config/convergence"),
        **followed(request, caller),
    }
    return render(request, "web/targets.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may_admin, state = caller.role.covers(Role.ADMIN), _state(request)
    context = {"may_admin": may_admin, "state": state}
    return shared_panel("web/parts/targets.html", lambda: {**_lines(state), **context}, (may_admin, state))


def _state(request: HttpRequest) -> str:
    """The state that alone is to be shown; empty: all."""
    asked = request.GET.get("state", "")
    return asked if asked in set(State) else ""


def _lines(state: str) -> dict[str, Any]:
    """All targets, or those in a state; of many those first that need a person."""
    lines = target_lines()
    chosen = [line for line in lines if not state or line.state == state]
    if len(chosen) > ROWS:
        chosen = neediest_first(chosen)
    return {"rows": chosen[:ROWS], "more": max(0, len(chosen) - ROWS), "tally": tally(lines), "total": len(lines)}


@page(Role.ADMIN)
def join(request: HttpRequest, caller: Caller) -> HttpResponse:
    done = reverse("web:targets")
    form = JoinTokenForm(request.POST or None)

    def asked() -> tuple[str, str]:
        return form.cleaned_data["kind"], form.cleaned_data["name"]

    def shown(unit: UnitOfWork) -> dict[str, Any]:
        return {"start": _start_command(request, *asked()), "warning": _replaces(*asked())}

    frame: dict[str, Any] = {
        "section": "targets",
        "title": _("New join token"),
        "trail": [(done, _("Targets"))],
        "done": done,
        "minutes": settings_rows.JOIN_TOKEN_MINUTES.read(),
        "curl_join": curl(request, "POST", "/targets/join-tokens", query=reason_of(request), body={"kind": "gateway"}),
    }

    def create(unit: UnitOfWork) -> str:
        return enrolment.create_join_token(unit, *asked())[1]

    return secret_page(request, caller, form, create, "web/join.html", frame, shown)


def _replaces(kind: str, name: str) -> str:
    """What to know of a token that is made for a name which a target has; nothing where none has it."""
    if not enrolment.is_enrolled(kind, name):
        return ""
    target = {"kind": TargetKind(kind).label, "name": name}
    return _("There is a %(kind)s %(name)s already: whoever joins with this token takes its place.") % target


def _start_command(request: HttpRequest, kind: str, name: str) -> str:
    """What joins with the token, once that lies in the file `join-token`."""
    program = {TargetKind.GATEWAY: "headworks-gateway", TargetKind.NODE: "headworks-agent"}[TargetKind(kind)]
    words = [program, "--control-url", f"{request.scheme}://{request.get_host()}", "--join-token-file", "join-token"]
    return shlex.join([*words, *(["--name", name] if name else [])])


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
        trail=[(back, _("Targets"))],
        done=back,
        curl=curl(request, "POST", f"/targets/{target_id}/revoke", query=reason_of(request)),
        note=_(
            "Its stream is closed at once and its token is worth nothing. It goes on with the configuration it has, "
            "and must join anew to get another."
        ),
        dangerous=True,
    )
    return confirm(request, caller, proposal)
