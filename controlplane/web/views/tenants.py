"""Tenants: the list, one tenant, and its form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import CharField, Count, Q, QuerySet
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry, Role
from controlplane.core.scope import any_of_theirs, own_tenant, within
from controlplane.core.security import Caller
from controlplane.tenants import services
from controlplane.tenants.key_keepers import may_keep
from controlplane.tenants.models import Tenant, TenantKey
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.common import NewTenantForm, TenantForm, TenantLimitsForm
from controlplane.web.forms.hours import line_of
from controlplane.web.listed import Listed, Wanted, listed
from controlplane.web.shown.tried import effect_in_words
from controlplane.web.views.review import Proposal, propose
from controlplane.web.writing import Action, rehearse

HISTORY_ROWS = 10


@page(judge=any_of_theirs)
def tenants(request: HttpRequest, caller: Caller) -> HttpResponse:
    wanted = Wanted.of(request)
    named = Q(name__icontains=wanted.text) | Q(display_name__icontains=wanted.text)
    found = Tenant.objects.filter(named).annotate(keys_count=Count("keys"))
    found = within(found, "name", caller.tenants).select_related(*services.TENANTS.related)
    page_of = listed(found.order_by("name"), wanted)
    context = {
        "section": "tenants",
        "rows": [
            {**shown, "keys_count": row.keys_count}  # type: ignore[attr-defined]  # annotated above
            for row, shown in zip(page_of.rows, services.TENANTS.show(page_of.rows), strict=True)
        ],
        "listed": page_of,
        "curl_list": curl(request, "GET", "/tenants"),
    }
    return render(request, "web/tenants.html", context)


@page(judge=own_tenant)
def tenant(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = services.get(name)
    shown = services.TENANTS.show([row])[0]
    keys = _keys(row, Wanted.of(request))
    context = {
        "section": "tenants",
        "tenant": shown,
        "hours": [line_of(named) for named in shown["schedule"].items()],
        "until": _on_the_clock_of(shown, shown["limits_now"]["until"]),
        "keys": [_key_line(key) for key in keys.rows],
        "listed": keys,
        "may_keep_keys": may_keep(caller.actor),
        "history": _history(row),
        **followed(request, caller),
        "curl_tenant": curl(request, "GET", f"/tenants/{name}"),
        "curl_keys": curl(request, "GET", f"/tenants/{name}/keys"),
    }
    return render(request, "web/tenant.html", context)


def _keys(tenant: Tenant, wanted: Wanted) -> Listed[TenantKey]:
    """Of those whose label holds what is searched for, or that begin with it: the newest first."""
    found = Q(label__icontains=wanted.text) | Q(prefix__startswith=wanted.text)
    return listed(tenant.keys.filter(found).order_by("-created_at", "-pk"), wanted)


def _history(tenant: Tenant) -> QuerySet[AuditEntry]:
    """The last changes of the tenant and of its keys."""
    keys = tenant.keys.annotate(key=Cast("pk", CharField())).values("key")
    # Each looked up by its index, which PostgreSQL uses for no subquery beside an "or".
    own = AuditEntry.objects.filter(noun="tenant", key=tenant.name)
    return own.union(AuditEntry.objects.filter(noun="key", key__in=keys), all=True).order_by("-pk")[:HISTORY_ROWS]


def _on_the_clock_of(tenant: Mapping[str, Any], moment: str | None) -> str:
    """A time as the clock of the tenant's zone shows it."""
    if moment is None:
        return ""
    return datetime.fromisoformat(moment).astimezone(ZoneInfo(tenant["time_zone"])).strftime("%Y-%m-%d %H:%M")


def _key_line(key: TenantKey) -> dict[str, Any]:
    expired = key.expires_at is not None and key.expires_at <= timezone.now()
    return {
        "id": key.pk,
        "prefix": key.prefix,
        "label": key.label,
        "blocked": key.blocked,
        "state": "blocked" if key.blocked else "expired" if expired else "active",
        "can_be_rotated": not (key.blocked or expired or key.replaced_by_id),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
    }


@page(Role.OPERATOR, judge=own_tenant)
def edit_tenant(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = services.describe(services.get(name))
    back = reverse("web:tenant", args=[name])
    form_of = TenantForm if caller.tenants is None else TenantLimitsForm
    form = form_of(request.POST or None, initial=current)
    form.row = current
    if request.method != "POST":
        return _form_page(request, form, back, name)
    readable = form.is_valid()
    values = {field: value for field, value in form.values().items() if value != current[field]}

    def change(unit: UnitOfWork) -> None:
        services.update(unit, name, values)

    if request.POST.get("step") == "edit" or not readable:
        return _form_page(request, _with_refusals(caller, form, change), back, name)

    proposal = Proposal(
        section="tenants",
        title=_("Change %(name)s") % {"name": name},
        apply_label=_("Apply"),
        action=change,
        trail=[(reverse("web:tenants"), _("Tenants")), (back, name)],
        done=back,
        curl=curl(request, "PATCH", f"/tenants/{name}", query=reason_of(request), body=values),
        note=f"{_what_it_does(current, values)} {effect_in_words(name, values)}".strip(),
        dangerous=bool(values.get("blocked")) or any(_takes_away(current, values, field) for field in _ALLOWED),
        carried=form,
    )
    return _propose_or_show(request, caller, proposal, form, name)


# What becomes of requests for what the lists of a tenant allow no more.
_ALLOWED = {
    "models": gettext_lazy("Requests for a model that it may not use any more are refused (model_not_allowed)."),
    "priority_classes": gettext_lazy(
        "Requests of a class that it may not use any more are refused (priority_class_not_allowed)."
    ),
}


def _takes_away(current: Mapping[str, Any], values: Mapping[str, Any], field: str) -> bool:
    """Whether a list that is changed lacks what it had; None allows all."""
    if (after := values.get(field)) is None:
        return False
    return current[field] is None or not set(current[field]) <= set(after)


def _what_it_does(current: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    if values.get("blocked"):
        return _(
            "Every new request of this tenant will be refused, with all of its keys. Streams that run are not cut."
        )
    said = [str(text) for field, text in _ALLOWED.items() if _takes_away(current, values, field)]
    if any(values.get(field) is not None for field in ("tpm_limit", "rpm_limit", "daily_token_budget")):
        over = _("Requests over a limit are answered with 429 and the time to wait. Streams that run are not cut.")
        said.append(over)
    return " ".join(said)


@page(Role.OPERATOR)
def new_tenant(request: HttpRequest, caller: Caller) -> HttpResponse:
    back = reverse("web:tenants")
    if request.method != "POST":
        return _form_page(request, NewTenantForm(initial={"weight": 1}), back)
    form = NewTenantForm(request.POST)
    readable = form.is_valid()
    name, values = form.cleaned_data.get("name", ""), form.values()

    def create(unit: UnitOfWork) -> None:
        services.create(unit, name, values)

    if request.POST.get("step") == "edit" or not readable:
        return _form_page(request, _with_refusals(caller, form, create), back)

    body = {"name": name, **{field: value for field, value in values.items() if value not in (None, "")}}
    proposal = Proposal(
        section="tenants",
        title=_("New tenant %(name)s") % {"name": name},
        apply_label=_("Make the tenant"),
        action=create,
        trail=[(back, _("Tenants"))],
        done=f"{back}{name}/",
        curl=curl(request, "POST", "/tenants", query=reason_of(request), body=body),
        carried=form,
    )
    return _propose_or_show(request, caller, proposal, form)


def _with_refusals(caller: Caller, form: TenantLimitsForm, action: Action) -> TenantLimitsForm:
    """What the service would refuse of the fields that could be read, beside those that could not: all at once."""
    try:
        rehearse(caller, action)
    except Refused as refused:
        form.take_refusal(refused)
    return form


def _propose_or_show(
    request: HttpRequest, caller: Caller, proposal: Proposal, form: TenantLimitsForm, name: str = ""
) -> HttpResponse:
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form, proposal.back, name)


def _form_page(request: HttpRequest, form: TenantLimitsForm, back: str, name: str = "") -> HttpResponse:
    refused = form.is_bound and bool(form.errors)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
    method, path, named = ("PATCH", f"/tenants/{name}", {}) if name else ("POST", "/tenants", {"name": "NAME"})
    line = curl(request, method, path, query=reason_of(request), body={**named, **begun(form)})
    context = {"section": "tenants", "form": form, "name": name, "back": back, "call_line": line}
    return render(request, "web/tenant_form.html", context, status=status)
