"""Receivers: who is told of incidents, how one is made and tried, and a message that is sent again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Receiver, ReceiverKind, Severity
from controlplane.alerts.outgoing import send_test
from controlplane.alerts.receivers.registry import CHANNELS
from controlplane.alerts.services import deliveries
from controlplane.alerts.services.receivers import RECEIVERS, secret_of
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound, Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.common import SecretForm
from controlplane.web.forms.receiver import GivenSecretForm, NewReceiverForm, ReceiverForm, initial_of
from controlplane.web.listed import Wanted, listed
from controlplane.web.shown import incidents as incidents_read
from controlplane.web.shown.spoken import spoken
from controlplane.web.views.review import Proposal, confirm, propose
from controlplane.web.writing import MadeAlready, make_secret


@page()
def receivers(request: HttpRequest, caller: Caller) -> HttpResponse:
    wanted = Wanted.of(request)
    # What is kept from its messages comes first.
    order = F("open_until").desc(nulls_last=True), "name"
    found = listed(Receiver.objects.filter(name__icontains=wanted.text).order_by(*order), wanted)
    context: dict[str, Any] = {
        "section": "receivers",
        "rows": incidents_read.receiver_lines(found.rows),
        "listed": found,
        "curl_receivers": curl(request, "GET", "/receivers"),
    }
    return render(request, "web/receivers.html", context)


@page()
def receiver(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Whether it takes what is sent, what waits and what failed, and the last attempts."""
    row = RECEIVERS.get(name)
    context: dict[str, Any] = {
        "section": "receivers",
        "trail": _trail(),
        "line": incidents_read.receiver_line(row),
        "makes_secret": _makes_secret(row),
        "messages": incidents_read.unsent(row),
        "tries": incidents_read.last_tries(row),
        "curl_state": curl(request, "GET", f"/receivers/{name}/state"),
    }
    return render(request, "web/receiver.html", context)


@page(Role.ADMIN)
def new_receiver(request: HttpRequest, caller: Caller) -> HttpResponse:
    """First the kind, then its fields."""
    kind = request.GET.get("kind", "")
    if kind not in CHANNELS:
        context = {"section": "receivers", "trail": _trail(), "kinds": ReceiverKind.choices}
        body = {"name": "NAME", "kind": "KIND"}
        context["curl_receiver"] = curl(request, "POST", "/receivers", query=reason_of(request), body=body)
        return render(request, "web/receiver_kinds.html", context)
    initial = {"min_severity": Severity.WARNING, "send_resolved": True}
    form = NewReceiverForm(kind, request.POST or None, initial=initial)
    body = {"name": "NAME", "kind": kind}
    body |= {field: field.upper() for field in ("url", "secret") if field in form.fields}
    frame: dict[str, Any] = {
        "title": _("New receiver: %(kind)s") % {"kind": ReceiverKind(kind).label},
        "apply_label": _("Make the receiver"),
        "shows_secret": not form.asks_secret and CHANNELS[kind].secret is not None,
        "curl_receiver": curl(request, "POST", "/receivers", query=reason_of(request), body=body),
    }

    def create(unit: UnitOfWork) -> str:
        return secret_of(RECEIVERS.create(unit, form.cleaned_data["name"], form.values())) or ""

    return _secret_page(request, caller, form, create, frame)


@page(Role.ADMIN)
def rotate_secret(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """A webhook's is made here; that of another kind is given."""
    row = RECEIVERS.get(name)
    if CHANNELS[row.kind].secret is None:
        raise NotFound(f"a receiver of kind {row.kind} has no secret")
    if _makes_secret(row):
        form: SecretForm = SecretForm(request.POST or None)
        note = _("Every message from now on is signed with it. Until the receiver knows it, it will refuse them.")
        line = curl(request, "POST", f"/receivers/{name}/rotate-secret", query=reason_of(request))
    else:
        form, note = GivenSecretForm(row.kind, request.POST or None), ""
        body = {"secret": "SECRET"}
        line = curl(request, "PATCH", f"/receivers/{name}", query=reason_of(request), body=body)

    def change(unit: UnitOfWork) -> str:
        if _makes_secret(row):
            return secret_of(RECEIVERS.rotate_secret(unit, name)) or ""
        RECEIVERS.update(unit, name, {"secret": form.cleaned_data["secret"]})
        return ""

    frame = {
        "title": _("New secret for %(name)s") % {"name": name},
        "apply_label": _("Make a new secret") if _makes_secret(row) else _("Keep it"),
        "shows_secret": _makes_secret(row),
        "note": note,
        "curl_receiver": line,
    }
    return _secret_page(request, caller, form, change, frame)


def _makes_secret(row: Receiver) -> bool:
    secret = CHANNELS[row.kind].secret
    return secret is not None and secret.made


def _secret_page(
    request: HttpRequest, caller: Caller, form: SecretForm, make: Callable[[UnitOfWork], str], frame: dict[str, Any]
) -> HttpResponse:
    """A secret that was made is shown this once; without one, the list of receivers says that it is done."""
    context = {"section": "receivers", "trail": _trail(), "done": reverse("web:receivers"), **frame, "form": form}
    if form.is_valid():
        try:
            _unit, secret = make_secret(caller, form, make)
        except MadeAlready as refused:
            again = {**context, "again": request.get_full_path()}
            return render(request, "web/made_already.html", again, status=refused.status)
        except Refused as refused:
            form.take_refusal(refused)
        else:
            if not secret:
                return redirect(context["done"])
            kept = _("It is shown this once. It is kept sealed, to sign with, and nobody can have it shown again.")
            return render(request, "web/secret.html", {**context, "secret": secret, "kept": kept})
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/receiver_form.html", context, status=status)


@page(Role.ADMIN)
def edit_receiver(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = RECEIVERS.describe(RECEIVERS.get(name))
    title = _("Change the receiver %(name)s") % {"name": name}
    form = ReceiverForm(current["kind"], request.POST or None, initial=initial_of(current))
    form.row = current
    context = {"section": "receivers", "trail": _trail(), "form": form, "done": reverse("web:receivers")}
    context |= {"title": title, "apply_label": _("Review the change"), "step": "review"}
    begins = begun(form, RECEIVERS.fields.model_fields)
    context["call_line"] = curl(request, "PATCH", f"/receivers/{name}", query=reason_of(request), body=begins)
    readable = request.method == "POST" and form.is_valid()
    if readable and request.POST.get("step") != "edit":
        values = {field: value for field, value in form.values().items() if value != current[field]}

        def change(unit: UnitOfWork) -> None:
            RECEIVERS.update(unit, name, values)

        line = curl(request, "PATCH", f"/receivers/{name}", query=reason_of(request), body=values)
        proposal = Proposal(
            section="receivers",
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
        section="receivers",
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
        "section": "receivers",
        "trail": _trail(),
        "title": _("Test the receiver %(name)s") % {"name": name},
        "receiver": RECEIVERS.describe(row),
        "outcome": outcome,
        "where": incidents_read.where_of(row),
        "taken": outcome is not None and outcome.reason is Reason.TAKEN,
        "done": reverse("web:receivers"),
        "curl_test": curl(request, "POST", f"/receivers/{name}/test"),
    }
    return render(request, "web/receiver_test.html", context)


@page(Role.OPERATOR)
def resend_failed(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    back = reverse("web:receiver", args=[name])

    def change(unit: UnitOfWork) -> None:
        deliveries.resend_failed(unit, RECEIVERS.get(name))

    proposal = Proposal(
        section="receivers",
        title=_("Send %(name)s all that failed again") % {"name": name},
        apply_label=_("Send again"),
        action=change,
        trail=[*_trail(), (back, name)],
        done=back,
        curl=curl(request, "POST", f"/receivers/{name}/resend-failed", query=reason_of(request)),
        note=_("What a later message contradicts stays as it is."),
    )
    return confirm(request, caller, proposal)


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
        trail=[(reverse("web:incidents"), _("Incidents")), (back, spoken(row.incident.title))],
        done=back,
        curl=curl(request, "POST", f"/deliveries/{delivery_id}/resend", query=reason_of(request)),
    )
    return confirm(request, caller, proposal)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:receivers"), _("Receivers"))]
