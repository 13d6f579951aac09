"""Engines and nodes as the configuration has them: new, changed, moved to another pool, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Engine, EngineKind, Node, Pool
from controlplane.fleet.services import ENGINES, NODES
from controlplane.web.access import page
from controlplane.web.asked import text_in
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.engine import EngineForm, EngineKeyForm, NewEngineForm, NewNodeForm
from controlplane.web.shown.capacity import loss_of
from controlplane.web.views.comes_first import POOL, Asked, comes_first
from controlplane.web.views.noun_pages import NounPages
from controlplane.web.writing import MadeAlready, is_made, once

_ENGINES = NounPages(
    ENGINES, EngineForm, NewEngineForm, "/engines", "web:fleet", "fleet",
    gettext_lazy("Fleet"), gettext_lazy("New engine"), template="web/engine_form.html",
)  # fmt: skip
_NODES = NounPages(
    NODES, NewNodeForm, NewNodeForm, "/nodes", "web:fleet", "fleet",
    gettext_lazy("Fleet"), gettext_lazy("New node"), one="web:node",
)  # fmt: skip
# What a link may fill in.
_GIVEN = ("name", "pool", "node", "url", "kind", "served_model")


@page(Role.OPERATOR)
def new_engine(request: HttpRequest, caller: Caller) -> HttpResponse:
    if not Pool.objects.exists():
        asked = Asked(
            "fleet", _("New engine"), [(reverse("web:fleet"), _("Fleet"))],
            _("An engine serves the model of its pool: a model comes first, then a pool of it, then the engine."),
            ("POST", "/engines"), {"name": "NAME", "pool": "POOL", "url": "URL", "served_model": "MODEL"},
        )  # fmt: skip
        return comes_first(request, caller, POOL, asked)
    given = {name: value for name in _GIVEN if (value := text_in(request, name))}
    if given.get("kind") not in {None, *EngineKind.values}:
        del given["kind"]
    return _ENGINES.new(request, caller, given)


@page(Role.OPERATOR)
def edit_engine(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = ENGINES.get(name)
    return _ENGINES.edit(request, caller, name, lambda fields: _moved(row, fields))


def _moved(row: Engine, fields: Mapping[str, Any]) -> str:
    if "pool" in fields:
        return loss_of([row])
    if "url" in fields:
        return _("New requests go to the new address at once; what runs at the old one ends by itself.")
    return ""


@page(Role.OPERATOR)
def delete_engine(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("Gateways send it nothing any more, and its agent no longer watches it. The process itself goes on.")
    # Pressed twice it is gone by now.
    row = ENGINES.find(name)
    return _ENGINES.delete(request, caller, name, note, loss_of([row] if row else []))


@page(Role.OPERATOR)
def engine_key(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """Set its API key, without a review: a page that shows what was typed would show a secret."""
    row = ENGINES.get(name)
    form = EngineKeyForm(request.POST or None)
    if form.is_valid():
        change_id = form.cleaned_data["form_id"]
        try:
            with once(caller, form.cleaned_data["reason"], change_id) as unit:
                ENGINES.update(unit, name, {"api_key": form.cleaned_data["api_key"] or None})
        except MadeAlready:
            # The button was pressed twice, or the page sent anew: the answer is that of the first time.
            return _key_set(change_id)
        except Refused as refused:
            form.take_refusal(refused)
        else:
            return _key_set(change_id)
    context = {
        "section": "fleet",
        "trail": [(reverse("web:fleet"), _("Fleet"))],
        "name": name,
        "is_set": bool(row.encrypted_api_key),
        "form": form,
        "curl_key": curl(
            request, "PATCH", f"/engines/{name}", query=reason_of(request), body={"api_key": "ENGINE_API_KEY"}
        ),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/engine_key.html", context, status=status)


def _key_set(change_id: uuid.UUID) -> HttpResponse:
    home = reverse("web:fleet")
    return redirect(f"{home}?change={change_id}" if is_made(change_id, published=True) else home)


@page(Role.OPERATOR)
def new_node(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _NODES.new(request, caller)


@page(Role.OPERATOR)
def delete_node(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row: Node | None = NODES.find(name)
    note = _("The node leaves the fleet's page. An agent that still runs there can report no more.")
    return _NODES.delete(request, caller, name, note, loss_of(row.engines.all() if row else []))
