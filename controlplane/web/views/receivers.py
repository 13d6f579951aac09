"""Receivers: who is told of incidents, how one is made and tried, and a message that is sent again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Severity
from controlplane.alerts.outgoing import send_test
from controlplane.alerts.services import deliveries
from controlplane.alerts.services.receivers import RECEIVERS, secret_of
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web import incidents as incidents_read
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms import NewReceiverForm, ReceiverForm, SecretForm
from controlplane.web.views.review import Proposal, confirm, propose
from controlplane.web.views.secret import secret_page


@page()
def receivers(request: HttpRequest, caller: Caller) -> HttpResponse:
    context: dict[str, Any] = {
        "section": "incidents",
        "rows": incidents_read.receiver_lines(),
        "trail": _trail()[:1],
        "curl_receivers": curl(request, "GET", "/receivers"),
    }
    return render(request, "web/receivers.html", context)


@page(Role.ADMIN)
def new_receiver(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = NewReceiverForm(request.POST or None, initial={"min_severity": Severity.WARNING, "send_resolved": True})
    body = {"name": "NAME", "url": "URL"}
    frame = {"title": _("New receiver"), "apply_label": _("Make the receiver")}

    def create(unit: UnitOfWork) -> str:
        return secret_of(RECEIVERS.create(unit, form.cleaned_data["name"], form.values()))

    line = curl(request, "POST", "/receivers", query=reason_of(request), body=body)
    return _secret_page(request, caller, form, create, {**frame, "curl_receiver": line})


@page(Role.ADMIN)
def rotate_secret(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    RECEIVERS.get(name)
    frame = {
        "title": _("New secret for %(name)s") % {"name": name},
        "apply_label": _("Make a new secret"),
        "note": _("Every message from now on is signed with it. Until the receiver knows it, it will refuse them."),
    }
    line = curl(request, "POST", f"/receivers/{name}/rotate-secret", query=reason_of(request))

    def rotate(unit: UnitOfWork) -> str:
        return secret_of(RECEIVERS.rotate_secret(unit, name))

    return _secret_page(request, caller, SecretForm(request.POST or None), rotate, {**frame, "curl_receiver": line})


def _secret_page(
    request: HttpRequest, caller: Caller, form: SecretForm, make: Callable[[UnitOfWork], str], frame: dict[str, Any]
) -> HttpResponse:
    note = _("It is shown this once. It is kept sealed, to sign with, and nobody can have it shown again.")
    frame = {"section": "incidents", "trail": _trail(), "done": reverse("web:receivers"), **frame}
    return secret_page(request, caller, form, make, "web/receiver_form.html", frame, lambda unit: {"kept": note})


@page(Role.ADMIN)
def edit_receiver(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = RECEIVERS.describe(RECEIVERS.get(name))
    title = _("Change the receiver %(name)s") % {"name": name}
    form = ReceiverForm(request.POST or None, initial=current)
    context = {"section": "incidents", "trail": _trail(), "form": form, "done": reverse("web:receivers")}
    context |= {"title": title, "apply_label": _("Review the change"), "step": "review"}
    readable = request.method == "POST" and form.is_valid()
    if readable and request.POST.get("step") != "edit":
        values = {field: value for field, value in form.values().items() if value != current[field]}

        def change(unit: UnitOfWork) -> None:
            RECEIVERS.update(unit, name, values)

        line = curl(request, "PATCH", f"/receivers/{name}", query=reason_of(request), body=values)
        proposal = Proposal(
            section="incidents",
            title=title,
            apply_label=_("Apply"),
            action=change,
            trail=_trail(),
            done=reverse("web:receivers"),
            curl=line,
            carried=form,
        )
        try:
            return propose(request, caller, proposal)
        except Refused as refused:
            form.take_refusal(refused)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/receiver_form.html", context, status=status)


@page(Role.ADMIN)
def switch_receiver(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """On where it is off, and off where it is on."""
    enabled = not RECEIVERS.get(name).enabled

    def change(unit: UnitOfWork) -> None:
        RECEIVERS.update(unit, name, {"enabled": enabled})

    proposal = Proposal(
        section="incidents",
        title=(_("Switch on %(name)s") if enabled else _("Switch off %(name)s")) % {"name": name},
        apply_label=_("Switch on") if enabled else _("Switch off"),
        action=change,
        trail=_trail(),
        done=reverse("web:receivers"),
        curl=curl(request, "PATCH", f"/receivers/{name}", query=reason_of(request), body={"enabled": enabled}),
        note=_("What waits for it is sent now.") if enabled else _("It is told nothing until it is switched on again."),
        dangerous=not enabled,
    )
    return confirm(request, caller, proposal)


@page(Role.ADMIN)
def test_receiver(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = RECEIVERS.get(name)
    outcome: Outcome | None = send_test(row, timezone.now()) if request.method == "POST" else None
    context = {
        "section": "incidents",
        "trail": _trail(),
        "title": _("Test the receiver %(name)s") % {"name": name},
        "receiver": RECEIVERS.describe(row),
        "outcome": outcome,
        "taken": outcome is not None and outcome.reason is Reason.TAKEN,
        "done": reverse("web:receivers"),
        "curl_test": curl(request, "POST", f"/receivers/{name}/test"),
    }
    return render(request, "web/receiver_test.html", context)


@page(Role.OPERATOR)
def resend_delivery(request: HttpRequest, caller: Caller, delivery_id: uuid.UUID) -> HttpResponse:
    row = deliveries.get(delivery_id)

    def change(unit: UnitOfWork) -> None:
        deliveries.resend(unit, delivery_id)

    back = reverse("web:incident", args=[row.incident_id])
    proposal = Proposal(
        section="incidents",
        title=_("Tell %(name)s again") % {"name": row.receiver.name},
        apply_label=_("Send again"),
        action=change,
        trail=[(reverse("web:incidents"), _("Incidents")), (back, row.incident.title)],
        done=back,
        curl=curl(request, "POST", f"/deliveries/{delivery_id}/resend", query=reason_of(request)),
    )
    return confirm(request, caller, proposal)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:incidents"), _("Incidents")), (reverse("web:receivers"), _("Receivers"))]
