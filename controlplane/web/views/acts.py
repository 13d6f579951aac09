"""Acts: what agents were asked to do and what became of it; asking for one, and taking one back."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound, Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import ActState, Node
from controlplane.fleet.services import acts as service
from controlplane.web.access import page
from controlplane.web.asked import number_in, text_in
from controlplane.web.choices import among
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.act import ActForm
from controlplane.web.labels import action_label
from controlplane.web.listed import Wanted
from controlplane.web.shown import acts as acts_read
from controlplane.web.shown.capacity import loss_of
from controlplane.web.views.review import Proposal, confirm, propose
from wire.acts import ACTIONS

ROWS_PER_PAGE = 50
# What they end or take away is asked for in red.
_DANGEROUS = {
    "sleep",
    "pause",
    "unload_lora",
    "unload_model",
    "drain",
    "restart",
    "stop",
    "release_gpus",
    "reset_gpu",
    "reboot",
}


@page()
def acts(request: HttpRequest, caller: Caller) -> HttpResponse:
    state, node = (text_in(request, name).strip() for name in ("state", "node"))
    state = state if state in ActState.values else ""
    start = number_in(request, "before") or 0
    names = list(Node.objects.values_list("name", flat=True))
    # A name that is typed may be of no node.
    rows, following = (
        service.page(node=node, state=state, limit=ROWS_PER_PAGE, after=start) if node in {"", *names} else ([], None)
    )
    wanted = {name: value for name, value in (("state", state), ("node", node)) if value}
    context: dict[str, Any] = {
        "section": "acts",
        "lines": [acts_read.ActLine(row) for row in rows],
        "state": state,
        "node": node,
        "states": ActState.choices,
        "nodes": among("node", _("Node"), _("all nodes"), names, node),
        "paged": start > 0,
        "next_address": following and f"{reverse('web:acts')}?{urlencode({**wanted, 'before': following})}",
        **followed(request, caller),
        "curl_acts": curl(request, "GET", "/acts", query=wanted),
    }
    return render(request, "web/acts.html", context)


def _subject(request: HttpRequest) -> acts_read.Subject | None:
    engine, node = (text_in(request, name) for name in ("engine", "node"))
    return acts_read.subject_of(engine=engine, node=node)


@page(Role.OPERATOR)
def choose_act(request: HttpRequest, caller: Caller) -> HttpResponse:
    """First the engine or the node, then the action."""
    subject = _subject(request)
    context: dict[str, Any] = {
        "section": "acts",
        "subject": subject,
        "offers": acts_read.offers(subject) if subject else [],
        "listed": None if subject else acts_read.subjects(Wanted.of(request)),
        "trail": [(reverse("web:acts"), _("Acts"))],
        "curl_act": _call(request, subject, "ACTION") if subject else curl(request, "GET", "/engines"),
    }
    return render(request, "web/act_choice.html", context)


@page(Role.OPERATOR)
def ask_act(request: HttpRequest, caller: Caller, action: str) -> HttpResponse:
    subject = _subject(request)
    if subject is None or action not in ACTIONS or bool(ACTIONS[action].kinds) != (subject.engine is not None):
        raise NotFound(_("There is no such act. Choose an engine or a node first, then what to do."))
    if request.method != "POST":
        return _form_page(request, subject, action, ActForm(action))
    form = ActForm(action, request.POST)
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, subject, action, form)
    body = {"action": action, subject.field: subject.name, "arguments": form.arguments()}
    body["expires_in_seconds"] = form.cleaned_data["expires_in_seconds"]

    def ask(unit: UnitOfWork) -> None:
        service.create(unit, body)

    proposal = Proposal(
        section="acts",
        title=_title(subject, action),
        apply_label=_("Ask for it"),
        action=ask,
        trail=_trail(subject),
        done=reverse("web:acts"),
        curl=curl(request, "POST", "/acts", query=reason_of(request), body=body),
        note=_("The node's agent does it once, or says why it does not: its own policy has the last word."),
        dangerous=action in _DANGEROUS,
        whom=_whom(subject) if action in _DANGEROUS else "",
        carried=form,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, subject, action, form)


def _call(request: HttpRequest, subject: acts_read.Subject, action: str) -> str:
    body = {"action": action, subject.field: subject.name}
    return curl(request, "POST", "/acts", query=reason_of(request), body=body)


def _whom(subject: acts_read.Subject) -> str:
    return loss_of([subject.engine] if subject.engine else subject.node.engines.all())


def _title(subject: acts_read.Subject, action: str) -> str:
    return _("%(action)s: %(subject)s") % {"action": action_label(action), "subject": subject.name}


def _trail(subject: acts_read.Subject) -> list[tuple[str, str]]:
    chosen = f"{reverse('web:choose_act')}?{urlencode({subject.field: subject.name})}"
    return [(reverse("web:acts"), _("Acts")), (chosen, subject.name)]


def _form_page(request: HttpRequest, subject: acts_read.Subject, action: str, form: ActForm) -> HttpResponse:
    refused = form.is_bound and bool(form.errors)
    why_not = next(offer.why_not for offer in acts_read.offers(subject) if offer.action == action)
    context = {
        "section": "acts",
        "form": form,
        "title": _title(subject, action),
        "why_not": why_not,
        "trail": _trail(subject),
        "call_line": _call(request, subject, action),
    }
    return render(request, "web/act_form.html", context, status=HTTPStatus.UNPROCESSABLE_ENTITY if refused else 200)


@page(Role.OPERATOR)
def cancel_act(request: HttpRequest, caller: Caller, act_id: str) -> HttpResponse:
    line = acts_read.ActLine(service.get(act_id))
    back = reverse("web:acts")

    def cancel(unit: UnitOfWork) -> None:
        service.cancel(unit, act_id)

    proposal = Proposal(
        section="acts",
        title=_("Cancel “%(action)s” of %(subject)s") % {"action": line.label, "subject": line.subject},
        apply_label=_("Take it back"),
        leave_label=_("Back"),
        action=cancel,
        trail=[(back, _("Acts"))],
        done=back,
        curl=curl(request, "POST", f"/acts/{act_id}/cancel", query=reason_of(request)),
        note=_("An agent that has begun it, and has not told so yet, does it all the same."),
    )
    return confirm(request, caller, proposal)
