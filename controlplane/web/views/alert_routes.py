"""Where alerts go: routes, inhibitions, and a form that tries which way one would take."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.alerts.models import AlertRoute, Inhibition, Receiver
from controlplane.alerts.pipeline.matchers import Matcher
from controlplane.alerts.services import alert_routes as service
from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.inhibition_pack import is_changed
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl
from controlplane.web.forms.alert import (
    AlertRouteForm,
    InhibitionForm,
    NewAlertRouteForm,
    NewInhibitionForm,
    TryRouteForm,
)
from controlplane.web.listed import Wanted, listed
from controlplane.web.views.noun_pages import NounPages

_ROUTES = NounPages(
    ALERT_ROUTES, AlertRouteForm, NewAlertRouteForm, "/alert-routes", "web:alert_routes", "alert_routes",
    gettext_lazy("Alert routes"), gettext_lazy("New alert route"),
)  # fmt: skip
_INHIBITIONS = NounPages(
    INHIBITIONS, InhibitionForm, NewInhibitionForm, "/inhibitions", "web:alert_routes", "alert_routes",
    gettext_lazy("Alert routes"), gettext_lazy("New inhibition"),
)  # fmt: skip


@page()
def alert_routes(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = TryRouteForm(request.GET if "labels" in request.GET else None)
    wanted, wanted_inhibitions = Wanted.of(request), Wanted.of(request, "inhibitions_", ("q", "page"))
    rows = listed(AlertRoute.objects.filter(name__icontains=wanted.text).order_by("order", "name"), wanted)
    inhibitions = Inhibition.objects.filter(name__icontains=wanted_inhibitions.text).order_by("name")
    listed_inhibitions = listed(inhibitions, wanted_inhibitions)
    context: dict[str, Any] = {
        "section": "alert_routes",
        "listed": rows,
        "inhibitions": [{"row": row, "changed": bool(row.pack) and is_changed(row)} for row in listed_inhibitions.rows],
        "listed_inhibitions": listed_inhibitions,
        "receivers": Receiver.objects.count(),
        "form": form,
        "tried": _tried(form),
        "curl_routes": curl(request, "GET", "/alert-routes"),
    }
    return render(request, "web/alert_routes.html", context)


def _tried(form: TryRouteForm) -> dict[str, Any] | None:
    if not form.is_bound or not form.is_valid():
        return None
    try:
        labels = service.labels_of(form.cleaned_data["labels"])
        found = service.tried(labels, form.cleaned_data["source"])
    except Refused as refused:
        form.take_refusal(refused)
        return None
    group = [str(Matcher(name, "=", value)) for name, value in sorted(found["group"].items())]
    muted = [f"{kind} {name}" for kind, names in found["muted_by"].items() for name in names]
    return {**found, "group": group, "muted": muted}


@page(Role.ADMIN)
def new_alert_route(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _ROUTES.new(request, caller)


@page(Role.ADMIN)
def edit_alert_route(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _ROUTES.edit(request, caller, name)


@page(Role.ADMIN)
def delete_alert_route(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("Its alerts take the next route that matches; what no route matches goes to every receiver.")
    return _ROUTES.delete(request, caller, name, note)


@page(Role.ADMIN)
def new_inhibition(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _INHIBITIONS.new(request, caller)


@page(Role.ADMIN)
def edit_inhibition(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _INHIBITIONS.edit(request, caller, name)


@page(Role.ADMIN)
def delete_inhibition(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _INHIBITIONS.delete(request, caller, name, _("What it kept quiet, and still fires, is told."))
