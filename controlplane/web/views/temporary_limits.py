"""Limits of a tenant for a time: given, and ended before their time."""

from __future__ import annotations

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.tenants import services
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import TemporaryLimitsForm
from controlplane.web.shown.tried import effect_in_words
from controlplane.web.views.review import Proposal, confirm, propose


@page(Role.OPERATOR)
def give(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    services.get(name)
    if request.method != "POST":
        return _form_page(request, TemporaryLimitsForm(), name)
    form = TemporaryLimitsForm(request.POST)
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form, name)
    asked = {field: value for field, value in form.cleaned_data.items() if value is not None}

    def change(unit: UnitOfWork) -> None:
        services.give_temporary_limits(unit, name, asked)

    proposal = Proposal(
        section="tenants",
        title=_title(name),
        apply_label=_("Give the limits"),
        action=change,
        trail=[*_trail(name), (reverse("web:give_temporary_limits", args=[name]), _("For a time"))],
        done=reverse("web:tenant", args=[name]),
        curl=curl(request, "POST", f"/tenants/{name}/temporary-limits", query=reason_of(request), body=asked),
        note=f"{_what_they_do()} {effect_in_words(name, asked)}".strip(),
        carried=form,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form, name)


@page(Role.OPERATOR)
def end(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    services.get(name)
    done = reverse("web:tenant", args=[name])
    proposal = Proposal(
        section="tenants",
        title=_("End the temporary limits of %(name)s") % {"name": name},
        apply_label=_("End them now"),
        action=lambda unit: services.take_back_temporary_limits(unit, name),
        trail=_trail(name),
        done=done,
        curl=curl(request, "DELETE", f"/tenants/{name}/temporary-limits", query=reason_of(request)),
        note=_("The tenant's own limits hold again, or those of its hours."),
    )
    return confirm(request, caller, proposal)


def _what_they_do() -> str:
    return _("They go before the tenant's own limits and its hours, and take the place of those given before.")


def _title(name: str) -> str:
    return _("Limits of %(name)s for a time") % {"name": name}


def _trail(name: str) -> list[tuple[str, str]]:
    return [(reverse("web:tenants"), _("Tenants")), (reverse("web:tenant", args=[name]), name)]


def _form_page(request: HttpRequest, form: TemporaryLimitsForm, name: str) -> HttpResponse:
    refused = form.is_bound and bool(form.errors)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
    example = {"tpm_limit": 60_000, "expires_in_seconds": 3600}
    line = curl(request, "POST", f"/tenants/{name}/temporary-limits", query=reason_of(request), body=example)
    context = {"section": "tenants", "title": _title(name), "form": form, "name": name, "trail": _trail(name)}
    context["call_line"] = line
    return render(request, "web/temporary_limits_form.html", context, status=status)
