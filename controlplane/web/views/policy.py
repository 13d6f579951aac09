"""The cordon policy: shown beside the incidents, changed by an admin."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.alerts.services import policy as service
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.common import PolicyForm
from controlplane.web.views.review import Proposal, propose


def policy_card(request: HttpRequest) -> dict[str, Any]:
    """What the card of the policy shows."""
    row = service.get()
    shown = {
        "enabled": row.enabled,
        "max_nodes_percent": row.max_nodes_permille / 10,
        "min_nodes": row.min_nodes,
        "window_seconds": row.window_ms / 1000,
    }
    return {"policy": shown, "curl_policy": curl(request, "GET", "/cordon-policy")}


@page(Role.ADMIN)
def edit_policy(request: HttpRequest, caller: Caller) -> HttpResponse:
    current = service.describe(service.get())
    form = PolicyForm(request.POST or None, initial=current)
    form.row = current
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form)
    values = {field: value for field, value in form.cleaned_data.items() if value != current[field]}

    def change(unit: UnitOfWork) -> None:
        service.update(unit, values)

    back = reverse("web:incidents")
    proposal = Proposal(
        section="incidents",
        title=_("Change the cordon policy"),
        apply_label=_("Apply"),
        action=change,
        trail=[(back, _("Incidents"))],
        done=back,
        curl=curl(request, "PATCH", "/cordon-policy", query=reason_of(request), body=values),
        note=_("From now on a critical hardware event cordons its node by itself.") if values.get("enabled") else "",
        carried=form,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _form_page(request: HttpRequest, form: PolicyForm) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    line = curl(request, "PATCH", "/cordon-policy", query=reason_of(request), body=begun(form))
    context = {"section": "incidents", "form": form, "trail": [(reverse("web:incidents"), _("Incidents"))]}
    context["call_line"] = line
    return render(request, "web/policy_form.html", context, status=status)
