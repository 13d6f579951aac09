"""Breakers: where each stands at each gateway, and the overrides that people put on them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.breakers import services
from controlplane.breakers.services import OVERRIDES
from controlplane.breakers.standing import Forced
from controlplane.configs import stages
from controlplane.configs.history import Damaged
from controlplane.configs.models import Stage
from controlplane.core.models import AuditEntry, Role, TargetKind
from controlplane.core.security import Caller
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import POOLS
from controlplane.web.access import page
from controlplane.web.convergence import followed, standing
from controlplane.web.curl import curl, reason_of
from controlplane.web.effects import tenants_of
from controlplane.web.forms.override import OverrideForm
from controlplane.web.listed import Wanted, listed
from controlplane.web.panels import shared_panel
from controlplane.web.shown.breakers import standing_of
from controlplane.web.shown.in_force import in_force
from controlplane.web.views.comes_first import POOL, Asked, comes_first
from controlplane.web.views.noun_pages import Frame, ask
from controlplane.web.views.review import Proposal, confirm

SECTION = "breakers"
HISTORY_ROWS = 30


@page()
def breakers(request: HttpRequest, caller: Caller) -> HttpResponse:
    context: dict[str, Any] = {
        "section": SECTION,
        **_standing(Wanted.of(request)),
        "history": AuditEntry.objects.filter(noun=OVERRIDES.noun).order_by("-pk")[:HISTORY_ROWS],
        "curl_breakers": curl(request, "GET", "/breakers"),
        **followed(request, caller),
    }
    return render(request, "web/breakers.html", context)


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    may_operate, wanted = caller.role.covers(Role.OPERATOR), Wanted.of(request)
    context = {"may_operate": may_operate}
    return shared_panel("web/parts/breakers.html", lambda: {**_standing(wanted), **context}, (may_operate, wanted))


def _standing(wanted: Wanted) -> dict[str, Any]:
    pools = listed(POOLS.queryset().filter(name__icontains=wanted.text).order_by("name"), wanted)
    forced, (gateways, stage) = Forced(timezone.now()), _gateways_and_stage()
    return {
        "standing": standing_of(pools.rows, forced, gateways),
        "in_force": in_force(forced, stage),
        "listed": pools,
    }


def _gateways_and_stage() -> tuple[list[str] | None, Stage | None]:
    """From what the frame reads too. Breakers go on where the configuration cannot be read."""
    try:
        now = standing()
    except Damaged:
        return None, stages.running()
    gateways = sorted(target["name"] for target in now["targets"] if target["kind"] == TargetKind.GATEWAY)
    return gateways, None if now["stage"] is None else stages.running()


@page(Role.OPERATOR)
def new_override(request: HttpRequest, caller: Caller) -> HttpResponse:
    home = reverse("web:breakers")
    if not Pool.objects.exists():
        asked = Asked(
            SECTION, _("Force a breaker"), [(home, _("Breakers"))],
            _("A breaker is a pool's or an engine's: a model comes first, then a pool of it, then its engines."),
            ("POST", "/overrides"), {"subject_kind": "pool", "subject": "POOL", "state": "open"},
        )  # fmt: skip
        return comes_first(request, caller, POOL, asked)
    given = {name: request.GET.get(name, "") for name in ("subject", "state") if request.GET.get(name)}
    form = OverrideForm(request.POST or None, initial=given)
    frame = Frame(
        SECTION,
        _("Force a breaker"),
        [(home, _("Breakers"))],
        home,
        lambda: _effect(form.values()),
        dangerous=request.POST.get("state") == "open",
        whom=lambda: _whom(form.values()),
    )
    return ask(
        request, caller, form, frame, lambda unit: services.force(unit, form.values()), ("POST", "/overrides"),
        form.values,
    )  # fmt: skip


def _effect(asked: dict[str, Any]) -> str:
    subject, is_pool = asked["subject"], asked["subject_kind"] == "pool"
    if asked["state"] == "closed":
        return _(
            "Requests go there however many fail, until it ends. It helps where a breaker opens for no good reason."
        )
    of_pool = _(
        "No gateway sends a request to pool %(name)s until it ends: requests go to the fallbacks of their routes, or "
        "are refused (breaker_open)."
    )
    of_engine = _(
        "No gateway sends a request to engine %(name)s until it ends: the other engines of its pool take them."
    )
    says = of_pool if is_pool else of_engine
    return says % {"name": subject}


def _whom(asked: dict[str, Any]) -> str:
    if asked["state"] == "closed":
        return ""
    pool = asked["subject"] if asked["subject_kind"] == "pool" else _pool_of(asked["subject"])
    return tenants_of([pool] if pool else [])


def _pool_of(engine: str) -> str:
    return Engine.objects.filter(name=engine).values_list("pool__name", flat=True).first() or ""


@page(Role.OPERATOR)
def end_override(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    # Pressed twice it is gone by now.
    row = OVERRIDES.find(name)
    subject = {"kind": row.get_subject_kind_display(), "name": row.subject} if row else {"kind": "", "name": name}
    home = reverse("web:breakers")
    proposal = Proposal(
        section=SECTION,
        title=_("End the override of %(kind)s %(name)s") % subject,
        apply_label=_("End it now"),
        action=lambda unit: services.lift(unit, name),
        trail=[(home, _("Breakers"))],
        done=home,
        curl=curl(request, "DELETE", f"/overrides/{name}", query=reason_of(request)),
        note=_("The next strictest override holds then; where there is none, the breaker goes by what its engines do."),
    )
    return confirm(request, caller, proposal)
