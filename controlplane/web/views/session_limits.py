"""Session limits: where an agent's loop ends, how near sessions come to it, and the forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.tenants.services import SESSION_LIMITS
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl
from controlplane.web.effects import listed
from controlplane.web.forms.session import NewSessionLimitsForm, SessionLimitsForm
from controlplane.web.listed import Wanted
from controlplane.web.panels import shared_panel
from controlplane.web.shown.agent_sessions import sessions
from controlplane.web.views.noun_pages import NounPages

_PAGES = NounPages(
    SESSION_LIMITS, SessionLimitsForm, NewSessionLimitsForm, "/session-limits", "web:session_limits",
    "session_limits", gettext_lazy("Session limits"), gettext_lazy("New session limits"),
)  # fmt: skip


@page()
def session_limits(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = sessions(Wanted.of(request))
    context: dict[str, Any] = {
        "section": "session_limits",
        "sessions_now": now,
        "listed": now.listed,
        **followed(request, caller),
        "curl_limits": curl(request, "GET", "/session-limits"),
    }
    return render(request, "web/session_limits.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may, wanted = {"may_operate": caller.role.covers(Role.OPERATOR)}, Wanted.of(request)
    return shared_panel(
        "web/parts/sessions.html", lambda: {"sessions_now": sessions(wanted), **may}, (caller.role, wanted)
    )


@page(Role.OPERATOR)
def new_session_limits(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _PAGES.new(request, caller)


@page(Role.OPERATOR)
def edit_session_limits(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    tenants = list(SESSION_LIMITS.get(name).tenants.order_by("name").values_list("name", flat=True))

    def effect(_values: Mapping[str, Any]) -> str:
        said = _("It holds from the next call of every session of %(tenants)s on.")
        return said % {"tenants": listed(tenants)} if tenants else ""

    return _PAGES.edit(request, caller, name, effect)


@page(Role.OPERATOR)
def delete_session_limits(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _PAGES.delete(request, caller, name, _("Sessions that had these limits have none from then on."))
