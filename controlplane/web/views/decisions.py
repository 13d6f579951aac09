"""Decisions of gateways: the newest refusals, and why one request was refused."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.core.errors import NotFound
from controlplane.core.fields import epoch_ms, from_epoch_ms, iso
from controlplane.core.models import Target, TargetKind
from controlplane.core.scope import any_of_theirs, within
from controlplane.core.security import Caller
from controlplane.fleet.models import Pool
from controlplane.telemetry.decisions import log
from controlplane.telemetry.settings_rows import DECISIONS_KEEP_HOURS
from controlplane.tenants.models import Tenant
from controlplane.web.access import page
from controlplane.web.asked import number_in, text_in
from controlplane.web.choices import Choice, among
from controlplane.web.curl import curl
from controlplane.web.shown.decisions import stage_label, told
from controlplane.web.shown.quantities import lasted

ROWS_PER_PAGE = 50
FILTERS = ("tenant", "pool", "reason", "gateway")
# How far back, in minutes.
SPANS = (5, 15, 60, 360, 1440)


@page(judge=any_of_theirs)
def decisions(request: HttpRequest, caller: Caller) -> HttpResponse:
    given = {name: text_in(request, name).strip() for name in FILTERS}
    after = number_in(request, "after") or 0
    minutes = request.GET.get("minutes", "")
    span = timedelta(minutes=int(minutes)) if minutes in map(str, SPANS) else None
    since = None if span is None else timezone.now() - span
    wanted = {name: value for name, value in given.items() if value}
    shown = {**wanted, **({"minutes": minutes} if span else {})}
    rows, following = log.page(
        **given,
        refused=True,
        since_ms=None if since is None else epoch_ms(since),
        tenants=caller.tenants,
        limit=ROWS_PER_PAGE,
        after=after,
    )
    context = {
        "section": "decisions",
        "rows": [(row, from_epoch_ms(row.received_ms), stage_label(row.stage)) for row in rows],
        "wanted": shown,
        "choices": _choices(caller, given, minutes if span else ""),
        "paged": bool(after),
        "next_address": following and f"{reverse('web:decisions')}?{urlencode({**shown, 'after': following})}",
        "keep_hours": DECISIONS_KEEP_HOURS.read(),
        "curl_decisions": curl(request, "GET", "/decisions", query={**wanted, **_since(since), "refused": "true"}),
    }
    return render(request, "web/decisions.html", context)


def _since(moment: datetime | None) -> dict[str, Any]:
    return {} if moment is None else {"since": iso(moment)}


def _choices(caller: Caller, given: dict[str, str], minutes: str) -> list[Choice]:
    tenants = within(Tenant.objects.all(), "name", caller.tenants)
    found: list[tuple[str, str, str, Iterable[str]]] = [
        ("tenant", _("Tenant"), _("all tenants"), tenants.values_list("name", flat=True))
    ]
    # Which gateways there are, and why others are refused, is no matter of a tenant's people.
    if caller.tenants is None:
        gateways = Target.objects.filter(kind=TargetKind.GATEWAY).values_list("name", flat=True)
        found += [
            ("pool", _("Pool"), _("all pools"), Pool.objects.values_list("name", flat=True)),
            ("reason", _("Reason"), _("all reasons"), log.reasons_of_refusals()),
            ("gateway", _("Gateway"), _("all gateways"), gateways),
        ]
    named = [among(name, label, everything, names, given[name]) for name, label, everything, names in found]
    spans = [(str(span), _("last %(time)s") % {"time": lasted(60 * span)}) for span in SPANS]
    return [*named, Choice("minutes", _("Time"), _("any time"), spans, minutes)]


@page(judge=any_of_theirs)
def decision(request: HttpRequest, caller: Caller) -> HttpResponse:
    """What was decided of the request whose `x-request-id` is `id`."""
    request_id = request.GET.get("id", "").strip()
    if not request_id:
        return redirect("web:decisions")
    try:
        found = [told(row) for row in log.of_request(request_id, caller.tenants)]
    except NotFound:
        found = []
    context = {
        "section": "decisions",
        "trail": [(reverse("web:decisions"), _("Decisions"))],
        "request_id": request_id,
        "found": found,
        "keep_hours": DECISIONS_KEEP_HOURS.read(),
        "curl_decision": curl(request, "GET", f"/decisions/{request_id}"),
    }
    return render(request, "web/decision.html", context, status=HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
