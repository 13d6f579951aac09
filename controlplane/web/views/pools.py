"""Pools: the list, one pool, and their forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Model, Pool
from controlplane.fleet.services import POOLS
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl
from controlplane.web.effects import tenants_of
from controlplane.web.forms.grouped import settings_of
from controlplane.web.forms.pool import NewPoolForm, PoolForm
from controlplane.web.listed import Wanted
from controlplane.web.panels import shared_panel
from controlplane.web.shown import fleet as fleet_read
from controlplane.web.shown import pools as pools_read
from controlplane.web.views.comes_first import MODEL, Asked, comes_first
from controlplane.web.views.noun_pages import NounPages

HISTORY_ROWS = 10
_PAGES = NounPages(
    POOLS, PoolForm, NewPoolForm, "/pools", "web:pools", "pools", gettext_lazy("Pools"), gettext_lazy("New pool"),
    "web:pool",
)  # fmt: skip
# Whose lower value lets fewer requests in. None is no bound, the highest of all.
_BOUNDS = ("kv_admit_permille", "queue_cap", "queue_ttl_ms", "max_concurrency")


@page()
def pools(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = pools_read.pools(Wanted.of(request))
    context = {
        "section": "pools",
        "pools_now": now,
        "listed": now.listed,
        **followed(request, caller),
        "curl_pools": curl(request, "GET", "/pools"),
    }
    return render(request, "web/pools.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may, wanted = {"may_operate": caller.role.covers(Role.OPERATOR)}, Wanted.of(request)
    return shared_panel(
        "web/parts/pools.html", lambda: {"pools_now": pools_read.pools(wanted), **may}, (caller.role, wanted)
    )


@page()
def pool(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = POOLS.get(name)
    usage, usage_more, usage_missing = pools_read.usage_of(name)
    context = {
        "section": "pools",
        "name": name,
        "pool": row,
        "settings": settings_of(PoolForm, POOLS.describe(row)),
        **_now(row),
        "usage": usage,
        "usage_more": usage_more,
        "usage_missing": usage_missing,
        "history": AuditEntry.objects.filter(noun="pool", key=name).order_by("-pk")[:HISTORY_ROWS],
        **followed(request, caller),
        "curl_pool": curl(request, "GET", f"/pools/{name}"),
    }
    return render(request, "web/pool.html", context)


@page()
def pool_panel(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """What is live of one pool."""
    row = POOLS.get(name)
    may = {"may_operate": caller.role.covers(Role.OPERATOR)}
    return shared_panel("web/parts/pool_live.html", lambda: {"pool": row, **_now(row), **may}, (name, caller.role))


def _now(row: Pool) -> dict[str, Any]:
    line, missing = pools_read.pool_line(row)
    engines, engines_missing = fleet_read.engines_of(row)
    return {"line": line, "engines": engines, "missing": missing or engines_missing}


@page(Role.OPERATOR)
def new_pool(request: HttpRequest, caller: Caller) -> HttpResponse:
    if not Model.objects.exists():
        asked = Asked(
            "pools", _("New pool"), [(reverse("web:pools"), _("Pools"))],
            _("The engines of a pool serve one model: the model comes first."),
            ("POST", "/pools"), {"name": "NAME", "model": "MODEL"},
        )  # fmt: skip
        return comes_first(request, caller, MODEL, asked)
    return _PAGES.new(request, caller, {"model": request.GET.get("model", "")})


@page(Role.OPERATOR)
def edit_pool(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = POOLS.describe(POOLS.get(name))

    def effect(values: Mapping[str, Any]) -> str:
        if "model" in values:
            what = _("Requests for its model of now go elsewhere, or are refused where no route leads them.")
        elif any(lowers(current[bound], values[bound]) for bound in _BOUNDS if bound in values):
            what = _("It lets fewer requests in. Streams that run are not cut.")
        else:
            return ""
        return f"{what} {tenants_of([name])}".strip()

    return _PAGES.edit(request, caller, name, effect)


def lowers(before: int | None, after: int | None) -> bool:
    """Of a bound that may not be there at all."""
    return after is not None and (before is None or after < before)


@page(Role.OPERATOR)
def delete_pool(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("Requests that its routes lead there go elsewhere, or are refused where nothing else is left.")
    return _PAGES.delete(request, caller, name, note, tenants_of([name]))
