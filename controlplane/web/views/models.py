"""Models and aliases: the list, one model, and their forms."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Model, ModelVersion, Pool
from controlplane.fleet.services import ALIASES, MODELS
from controlplane.web.access import page
from controlplane.web.convergence import followed
from controlplane.web.curl import curl
from controlplane.web.effects import tenants_of
from controlplane.web.forms.grouped import settings_of
from controlplane.web.forms.model import AliasForm, ModelForm, NewAliasForm, NewModelForm
from controlplane.web.listed import Wanted
from controlplane.web.shown import pools as pools_read
from controlplane.web.shown import served_models
from controlplane.web.shown.model_files import files_of
from controlplane.web.views.comes_first import MODEL, Asked, comes_first
from controlplane.web.views.noun_pages import NounPages

HISTORY_ROWS = 10
_MODELS = NounPages(
    MODELS, ModelForm, NewModelForm, "/models", "web:models", "models", gettext_lazy("Models"),
    gettext_lazy("New model"), "web:model",
)  # fmt: skip
_ALIASES = NounPages(
    ALIASES, AliasForm, NewAliasForm, "/aliases", "web:models", "models", gettext_lazy("Models"),
    gettext_lazy("New alias"),
)  # fmt: skip


@page()
def models(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = served_models.models(Wanted.of(request))
    context = {
        "section": "models",
        "models_now": now,
        "listed": now.listed,
        **followed(request, caller),
        "curl_models": curl(request, "GET", "/models"),
        "curl_aliases": curl(request, "GET", "/aliases"),
    }
    return render(request, "web/models.html", context)


@page()
def model(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = MODELS.get(name)
    aliases = list(row.aliases.order_by("name").values_list("name", flat=True))
    version = ModelVersion.objects.filter(model=row).first()
    context: dict[str, Any] = {
        "section": "models",
        "name": name,
        "model": row,
        "settings": settings_of(ModelForm, MODELS.describe(row)),
        "aliases": aliases,
        "version": version,
        "siblings": ModelVersion.objects.filter(family=version.family).select_related("model") if version else [],
        "pools_now": pools_read.pools_of(row),
        "files": files_of(row),
        "history": AuditEntry.objects.filter(Q(noun="model", key=name) | Q(noun="alias", key__in=aliases)).order_by(
            "-pk"
        )[:HISTORY_ROWS],
        **followed(request, caller),
        "curl_model": curl(request, "GET", f"/models/{name}"),
    }
    return render(request, "web/model.html", context)


@page(Role.ADMIN)
def new_model(request: HttpRequest, caller: Caller) -> HttpResponse:
    return _MODELS.new(request, caller)


@page(Role.ADMIN)
def edit_model(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _MODELS.edit(request, caller, name)


@page(Role.ADMIN)
def delete_model(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _("Requests that name it are refused from then on.")
    return _MODELS.delete(request, caller, name, note, tenants_of(_pools_of(name)))


@page(Role.ADMIN)
def new_alias(request: HttpRequest, caller: Caller) -> HttpResponse:
    if not Model.objects.exists():
        asked = Asked(
            "models", _("New alias"), [(reverse("web:models"), _("Models"))],
            _("An alias is another name of a model: the model comes first."),
            ("POST", "/aliases"), {"name": "NAME", "model": "MODEL"},
        )  # fmt: skip
        return comes_first(request, caller, MODEL, asked)
    return _ALIASES.new(request, caller, {"model": request.GET.get("model", "")})


@page(Role.ADMIN)
def edit_alias(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _ALIASES.edit(request, caller, name, lambda values: _of_model(ALIASES.get(name).model.name))


@page(Role.ADMIN)
def delete_alias(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    model_name = ALIASES.get(name).model.name
    note = _("Requests by this name are refused from then on; those by the model's own name go on.")
    return _ALIASES.delete(request, caller, name, note, _of_model(model_name))


def _of_model(name: str) -> str:
    """By which of its names a client called is not counted."""
    said = tenants_of(_pools_of(name))
    return _("%(said)s That is by any name of the model.") % {"said": said} if said else ""


def _pools_of(model_name: str) -> list[str]:
    return list(Pool.objects.filter(model__name=model_name).values_list("name", flat=True))
