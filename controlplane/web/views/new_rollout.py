"""The form that begins a rollout: its kind and pool, what it is to do, and its plan before the reason."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Pool
from controlplane.rollouts import asked, services
from controlplane.rollouts.models import Kind, Rollout
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.effects import tenants_of
from controlplane.web.forms.rollout import FORMS, ChoiceForm, RolloutForm
from controlplane.web.shown.rollouts import preview_of
from controlplane.web.views.review import Proposal, propose

# They take engines of the pool out of service, for a time or for good.
_TAKES_AWAY = (Kind.RED_BLACK, Kind.ROLLING_RESTART, Kind.TO_SPARE)


@page(Role.ADMIN)
def new_rollout(request: HttpRequest, caller: Caller) -> HttpResponse:
    choice = ChoiceForm(request.GET if "kind" in request.GET else None, initial={"pool": request.GET.get("pool")})
    if not choice.is_valid():
        return _choice_page(request, choice)
    kind, name = choice.cleaned_data["kind"], choice.cleaned_data["pool"]
    pool = Pool.objects.get(name=name) if name else None
    form = FORMS[kind](pool, request.POST or None)
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form)
    try:
        return propose(request, caller, _proposal(request, form))
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _proposal(request: HttpRequest, form: RolloutForm) -> Proposal:
    body, preview = form.body(), dict[str, Any]()
    begun: list[Rollout] = []

    def begin(unit: UnitOfWork) -> None:
        begun[:] = [services.begin(unit, body)]
        if unit.dry_run:
            preview["of"] = preview_of(begun[0])

    applying = request.POST.get("step") == "apply"
    return Proposal(
        section="rollouts",
        title=_title(form),
        apply_label=_("Begin the rollout"),
        action=begin,
        trail=_trail(form),
        done=reverse("web:rollouts"),
        curl=curl(request, "POST", "/rollouts", query=reason_of(request), body=body),
        note="" if applying else _note(form),
        carried=form,
        preview_template="web/parts/rollout_plan.html",
        preview=preview,
    )


def _note(form: RolloutForm) -> str:
    said = _("It begins at once and goes on by itself; its page has pause, abort and the way back.")
    if form.chosen is None or form.kind not in _TAKES_AWAY:
        return said
    return f"{said} {tenants_of([form.chosen.name])}".strip()


def _choice_page(request: HttpRequest, choice: ChoiceForm) -> HttpResponse:
    context = {
        "section": "rollouts",
        "form": choice,
        "trail": [(reverse("web:rollouts"), _("Rollouts"))],
        "pools": Pool.objects.exists(),
        "curl_begin": curl(
            request,
            "POST",
            "/rollouts",
            query={**reason_of(request), "dry_run": "true"},
            body={"kind": "red_black", "pool": "POOL", "new_pool": "NEW-POOL"},
        ),
    }
    return render(request, "web/rollout_choice.html", context, status=_status(choice))


def _form_page(request: HttpRequest, form: RolloutForm) -> HttpResponse:
    context = {
        "section": "rollouts",
        "form": form,
        "title": _title(form),
        "trail": _trail(form)[:-1],
        "back": _trail(form)[-2][0],
        "call_line": curl(request, "POST", "/rollouts", query=reason_of(request), body=_begins(form)),
    }
    return render(request, "web/rollout_form.html", context, status=_status(form))


def _begins(form: RolloutForm) -> dict[str, Any]:
    """The body of the REST call before anything is typed: in capitals what a person must give."""
    fields = asked.KINDS[form.kind].model_fields
    needed = [name for name, field in fields.items() if field.is_required() and name != "kind"]
    body = {name: ["ENGINE"] if name == "engines" else name.upper() for name in needed}
    return {"kind": form.kind, **body, **{name: form.initial[name] for name in needed if form.initial.get(name)}}


def _status(form: ChoiceForm | RolloutForm) -> HTTPStatus:
    return HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK


def _title(form: RolloutForm) -> str:
    kind = Kind(form.kind).label.capitalize()
    return f"{kind}: {form.chosen.name}" if form.chosen else kind


def _trail(form: RolloutForm) -> list[tuple[str, str]]:
    chosen = urlencode({"kind": form.kind, "pool": form.chosen.name if form.chosen else ""})
    return [
        (reverse("web:rollouts"), _("Rollouts")),
        (reverse("web:new_rollout"), _("New rollout")),
        (f"{reverse('web:new_rollout')}?{chosen}", _title(form)),
    ]
