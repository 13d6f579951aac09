"""The overview, where people of the whole fleet begin: is it all right, and if not, why."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.core.models import User
from controlplane.core.security import Caller
from controlplane.web.access import page, start_page
from controlplane.web.curl import curl
from controlplane.web.panels import shared_panel
from controlplane.web.shown import lately as read_lately
from controlplane.web.shown.overview import overview as read


def home(request: HttpRequest) -> HttpResponse:
    user = request.user
    return redirect(start_page(user) if isinstance(user, User) else "web:overview")


@page()
def overview(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {
        "section": "overview",
        # Already rendered, for everybody who opens it at this moment.
        "panel": _panel(caller).content.decode(),
        "curl_overview": curl(request, "GET", "/overview"),
    }
    return render(request, "web/overview.html", context)


@page()
def lately(request: HttpRequest, caller: Caller) -> HttpResponse:
    """The foot of the page, which the page asks for itself: it moves slowly, and what comes first need not wait."""
    return shared_panel("web/parts/overview_lately.html", _lately)


def _lately() -> dict[str, Any]:
    return {"changes": read_lately.changes(), "muted": read_lately.muted(), "whole_fleet": True}


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _panel(caller)


def _panel(caller: Caller) -> HttpResponse:
    """Nothing of it is a person's own, but what their role may begin with."""

    def context() -> dict[str, Any]:
        seen = read()
        steps = [{"step": step, "offered": caller.role.covers(step.needs)} for step in seen.steps]
        return {"seen": seen, "steps": steps}

    return shared_panel("web/parts/overview.html", context, caller.role)
