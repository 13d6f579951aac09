"""A tenant's keys: made and shown once, blocked, let in again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import Role
from controlplane.core.scope import own_tenant
from controlplane.core.security import Caller
from controlplane.tenants import services
from controlplane.tenants.key_keepers import keeper
from controlplane.tenants.models import TenantKey
from controlplane.web.access import page
from controlplane.web.convergence import told_of
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import NewKeyForm, RotateKeyForm
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.secret import secret_page


@page(keeper, judge=own_tenant)
def new_key(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    services.get(name)
    form = NewKeyForm(request.POST or None)

    def create(unit: UnitOfWork) -> str:
        days = form.cleaned_data["days"]
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        return services.create_key(unit, name, {"label": form.cleaned_data["label"], "expires_at": expires_at})[1]

    def shown(unit: UnitOfWork) -> dict[str, Any]:
        return told_of(caller, unit.change_id)

    frame: dict[str, Any] = {
        "section": "tenants",
        "title": _("New key for %(name)s") % {"name": name},
        "trail": _trail(name),
        "done": reverse("web:tenant", args=[name]),
        "name": name,
        "curl_key": curl(request, "POST", f"/tenants/{name}/keys", query=reason_of(request), body={"label": "LABEL"}),
    }
    return secret_page(request, caller, form, create, "web/key_form.html", frame, shown)


@page(keeper, judge=own_tenant)
def rotate_key(request: HttpRequest, caller: Caller, name: str, key_id: int) -> HttpResponse:
    key = _key_of(name, key_id)
    form = RotateKeyForm(request.POST or None)

    def rotate(unit: UnitOfWork) -> str:
        return services.rotate_key(unit, key.pk, {"overlap_seconds": form.cleaned_data["overlap_seconds"]})[1]

    def shown(unit: UnitOfWork) -> dict[str, Any]:
        return told_of(caller, unit.change_id)

    body = {"overlap_seconds": 86_400}
    frame: dict[str, Any] = {
        "section": "tenants",
        "title": _("Rotate the key %(prefix)s… of %(name)s") % {"prefix": key.prefix, "name": name},
        "trail": _trail(name),
        "done": reverse("web:tenant", args=[name]),
        "name": name,
        "curl_key": curl(request, "POST", f"/keys/{key.pk}/rotate", query=reason_of(request), body=body),
    }
    return secret_page(request, caller, form, rotate, "web/key_form.html", frame, shown)


@page(Role.OPERATOR, judge=own_tenant)
def block_key(request: HttpRequest, caller: Caller, name: str, key_id: int) -> HttpResponse:
    key = _key_of(name, key_id)
    return _set_blocked(
        request,
        caller,
        key,
        blocked=True,
        title=_("Block the key %(prefix)s… of %(name)s") % {"prefix": key.prefix, "name": name},
        apply_label=_("Block the key"),
        note=_("Every new request with this key will be refused. The tenant's other keys go on working."),
    )


@page(keeper, judge=own_tenant)
def unblock_key(request: HttpRequest, caller: Caller, name: str, key_id: int) -> HttpResponse:
    key = _key_of(name, key_id)
    return _set_blocked(
        request,
        caller,
        key,
        blocked=False,
        title=_("Unblock the key %(prefix)s… of %(name)s") % {"prefix": key.prefix, "name": name},
        apply_label=_("Unblock the key"),
        note=_("Whoever holds this key can send requests again."),
    )


def _trail(name: str) -> list[tuple[str, str]]:
    return [(reverse("web:tenants"), _("Tenants")), (reverse("web:tenant", args=[name]), name)]


def _key_of(name: str, key_id: int) -> TenantKey:
    key = services.get_key(key_id)
    if key.tenant.name != name:
        # As of a key that nobody has: which numbers others have is not told.
        raise NotFound(f"there is no key {key_id}")
    return key


def _set_blocked(
    request: HttpRequest, caller: Caller, key: TenantKey, *, blocked: bool, title: str, apply_label: str, note: str
) -> HttpResponse:
    def change(unit: UnitOfWork) -> None:
        services.update_key(unit, key.pk, {"blocked": blocked})

    back = reverse("web:tenant", args=[key.tenant.name])
    line = curl(request, "PATCH", f"/keys/{key.pk}", query=reason_of(request), body={"blocked": blocked})
    proposal = Proposal(
        section="tenants",
        title=title,
        apply_label=apply_label,
        action=change,
        trail=_trail(key.tenant.name),
        done=back,
        curl=line,
        note=note,
        dangerous=blocked,
    )
    return confirm(request, caller, proposal)
