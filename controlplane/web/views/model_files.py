"""Files of models on nodes: what is there, and asking for more."""

from __future__ import annotations

from typing import Literal, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.services import MODELS
from controlplane.fleet.services import model_files as service
from controlplane.web.access import page
from controlplane.web.asked import text_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.labels import action_label
from controlplane.web.shown.model_files import model_lines
from controlplane.web.views.review import Proposal, confirm

# As the last part of their addresses, here and in REST.
_ACTIONS = {"fetch": "fetch_model", "check": "check_model"}


@page()
def model_files(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {
        "section": "model_files",
        "models": model_lines(),
        **followed(request, caller),
        "curl_files": curl(request, "GET", "/model-files"),
    }
    return render(request, "web/model_files.html", context)


@page(Role.OPERATOR)
def ask_model_files(request: HttpRequest, caller: Caller, verb: str) -> HttpResponse:
    """On all nodes that serve the model; of some of them by REST."""
    if verb not in _ACTIONS:
        raise NotFound(_("There is no such act. Choose an engine or a node first, then what to do."))
    action = cast(Literal["fetch_model", "check_model"], _ACTIONS[verb])
    model = MODELS.get(text_in(request, "model")).name
    back, body = reverse("web:model_files"), {"model": model}

    def ask(unit: UnitOfWork) -> None:
        service.ask(unit, action, body)

    proposal = Proposal(
        section="model_files",
        title=_("%(action)s: %(subject)s") % {"action": action_label(action), "subject": model},
        apply_label=_("Ask for it"),
        action=ask,
        trail=[(back, _("Model files"))],
        done=back,
        curl=curl(request, "POST", f"/model-files/{verb}", query=reason_of(request), body=body),
        note=_(
            "Each node that serves the model does it once, or says why it does not: its own policy has the last word."
        ),
    )
    return confirm(request, caller, proposal)
