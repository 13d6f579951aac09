"""Silences and maintenance windows: what is kept quiet, by whom, and until when."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.alerts.models import MaintenanceWindow, Silence
from controlplane.alerts.pipeline.silencing import DAYS
from controlplane.alerts.services import incidents, maintenance_windows, silences
from controlplane.alerts.services.maintenance_windows import MAINTENANCE_WINDOWS
from controlplane.alerts.services.silences import SILENCES
from controlplane.alerts.services.standing import window_of
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.alert import DAY_NAMES, NewSilenceForm, NewWindowForm, SilenceForm, WindowForm
from controlplane.web.listed import Wanted, listed
from controlplane.web.views.noun_pages import NounPages
from controlplane.web.views.review import Proposal, confirm

_SILENCES = NounPages(
    SILENCES, SilenceForm, NewSilenceForm, "/silences", "web:silences", "silences",
    gettext_lazy("Silences"), gettext_lazy("New silence"),
)  # fmt: skip
_WINDOWS = NounPages(
    MAINTENANCE_WINDOWS, WindowForm, NewWindowForm, "/maintenance-windows", "web:maintenance_windows", "silences",
    gettext_lazy("Maintenance windows"), gettext_lazy("New maintenance window"),
)  # fmt: skip


@page()
def silences_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    now, wanted = timezone.now(), Wanted.of(request)
    # Those that ended lately stand below the others.
    found = listed(Silence.objects.filter(name__icontains=wanted.text).order_by("-ends_at", "name"), wanted)
    windows = MaintenanceWindow.objects.filter(enabled=True)
    context = {
        "section": "silences",
        "rows": [{"row": row, "state": f"silence_{silences.state_of(row, now)}"} for row in found.rows],
        "listed": found,
        "windows_on": sum(window_of(row).is_on(now) for row in windows),
        "curl_silences": curl(request, "GET", "/silences"),
    }
    return render(request, "web/silences.html", context)


@page(Role.OPERATOR)
def new_silence(request: HttpRequest, caller: Caller) -> HttpResponse:
    """`?incident=…` fills in what matches its alerts."""
    given = {}
    chosen = number_in(request, "incident")
    if chosen is not None:
        incident = incidents.get(chosen)
        given = {"matchers": silences.matchers_of(incident), "comment": incident.title}
    return _SILENCES.new(request, caller, given)


@page(Role.OPERATOR)
def edit_silence(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _SILENCES.edit(request, caller, name)


@page(Role.OPERATOR)
def expire_silence(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    SILENCES.get(name)
    home = reverse("web:silences")
    proposal = Proposal(
        section="silences",
        title=_("End the silence %(name)s now") % {"name": name},
        apply_label=_("End it"),
        action=lambda unit: SILENCES.expire(unit, name, timezone.now()),
        trail=[(home, _("Silences"))],
        done=home,
        curl=curl(request, "POST", f"/silences/{name}/expire", query=reason_of(request)),
        note=_("What it kept quiet, and still fires, is told."),
    )
    return confirm(request, caller, proposal)


@page()
def maintenance_windows_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    wanted = Wanted.of(request)
    found = listed(MaintenanceWindow.objects.filter(name__icontains=wanted.text).order_by("name"), wanted)
    names = dict(zip(DAYS, DAY_NAMES, strict=True))
    context = {
        "section": "silences",
        "trail": [(reverse("web:silences"), _("Silences"))],
        "rows": [
            {**row, "day_names": [names[day] for day in row["days"]]} for row in maintenance_windows.shown(found.rows)
        ],
        "listed": found,
        "curl_windows": curl(request, "GET", "/maintenance-windows"),
    }
    return render(request, "web/maintenance_windows.html", context)


@page(Role.OPERATOR)
def new_window(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _WINDOWS.new(request, caller)


@page(Role.OPERATOR)
def edit_window(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _WINDOWS.edit(request, caller, name)


@page(Role.OPERATOR)
def delete_window(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _WINDOWS.delete(request, caller, name, _("What it kept quiet, and still fires, is told."))
