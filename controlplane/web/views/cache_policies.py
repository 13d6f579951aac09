"""Caches: the policies, what they gave, and their forms."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.tenants.services import CACHE_POLICIES
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl
from controlplane.web.forms.cache import CachePolicyForm, NewCachePolicyForm
from controlplane.web.listed import Wanted
from controlplane.web.panels import shared_panel
from controlplane.web.shown.caches import caches
from controlplane.web.views.noun_pages import NounPages

_PAGES = NounPages(
    CACHE_POLICIES, CachePolicyForm, NewCachePolicyForm, "/cache-policies", "web:cache_policies", "cache_policies",
    gettext_lazy("Caches"), gettext_lazy("New cache policy"),
)  # fmt: skip


@page()
def cache_policies(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = caches(Wanted.of(request))
    context: dict[str, Any] = {
        "section": "cache_policies",
        "caches_now": now,
        "listed": now.listed,
        **followed(request, caller),
        "curl_policies": curl(request, "GET", "/cache-policies"),
    }
    return render(request, "web/cache_policies.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may, wanted = {"may_operate": caller.role.covers(Role.OPERATOR)}, Wanted.of(request)
    return shared_panel("web/parts/caches.html", lambda: {"caches_now": caches(wanted), **may}, (caller.role, wanted))


@page(Role.OPERATOR)
def new_cache_policy(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _PAGES.new(request, caller)


@page(Role.OPERATOR)
def edit_cache_policy(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _PAGES.edit(request, caller, name)


@page(Role.OPERATOR)
def delete_cache_policy(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("What it answered goes to engines from then on, which makes them busier.")
    return _PAGES.delete(request, caller, name, note)
