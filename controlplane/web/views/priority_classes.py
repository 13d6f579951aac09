"""Priority classes: who is served first, and their forms."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl
from controlplane.web.effects import tenants_of_class
from controlplane.web.forms.classes import NewPriorityClassForm, PriorityClassForm
from controlplane.web.listed import Wanted
from controlplane.web.panels import shared_panel
from controlplane.web.shown.classes import classes
from controlplane.web.views.noun_pages import NounPages

_PAGES = NounPages(
    PRIORITY_CLASSES, PriorityClassForm, NewPriorityClassForm, "/priority-classes", "web:priority_classes",
    "priority_classes", gettext_lazy("Priority classes"), gettext_lazy("New priority class"),
)  # fmt: skip


@page()
def priority_classes(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = classes(Wanted.of(request))
    context: dict[str, Any] = {
        "section": "priority_classes",
        "classes_now": now,
        "listed": now.listed,
        **followed(request, caller),
        "curl_classes": curl(request, "GET", "/priority-classes"),
    }
    return render(request, "web/priority_classes.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may, wanted = {"may_operate": caller.role.covers(Role.OPERATOR)}, Wanted.of(request)
    return shared_panel(
        "web/parts/priority_classes.html", lambda: {"classes_now": classes(wanted), **may}, (caller.role, wanted)
    )


@page(Role.OPERATOR)
def new_priority_class(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _PAGES.new(request, caller)


@page(Role.OPERATOR)
def edit_priority_class(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _PAGES.edit(request, caller, name, lambda _values: tenants_of_class(name))


@page(Role.OPERATOR)
def delete_priority_class(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("Requests that ask for it are refused from then on.")
    return _PAGES.delete(request, caller, name, note, tenants_of_class(name))
