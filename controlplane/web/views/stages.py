"""Staged publishes: the list, one as it goes, how one begins and ends."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.configs import stage_asked, staged, stages
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.web import differences
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.stage import StageForm, read_change
from controlplane.web.panels import shared_panel
from controlplane.web.shown.staging import of_document_patch, of_stage, told
from controlplane.web.views.review import Proposal, confirm, propose

SECTION = "stages"
ROWS = 50


@page()
def list_stages(request: HttpRequest, caller: Caller) -> HttpResponse:
    found, following = stages.page(ROWS, number_in(request, "before"))
    context: dict[str, Any] = {
        "section": SECTION,
        "stages": [told(stage) for stage in found],
        "next_address": following and f"{reverse('web:stages')}?before={following}",
        "curl_stages": curl(request, "GET", "/config/stages"),
        **followed(request, caller),
    }
    return render(request, "web/stages.html", context)


@page()
def stage(request: HttpRequest, caller: Caller, stage_id: int) -> HttpResponse:
    row = stages.get(stage_id)
    context: dict[str, Any] = {
        "section": SECTION,
        "stage": told(row),
        "shown": differences.shortened(of_stage(row)),
        "entries": AuditEntry.objects.filter(noun=staged.NOUN, key=str(row.pk)).order_by("pk"),
        "curl_stage": curl(request, "GET", f"/config/stages/{stage_id}"),
        **followed(request, caller),
    }
    return render(request, "web/stage.html", context)


@page()
def panel(request: HttpRequest, caller: Caller, stage_id: int) -> HttpResponse:
    stages.get(stage_id)
    return shared_panel("web/parts/stage.html", lambda: {"stage": told(stages.get(stage_id))}, stage_id)


@page(Role.ADMIN)
def new_stage(request: HttpRequest, caller: Caller) -> HttpResponse:
    """`step` = begin: the change comes from the review of a write, which some targets shall get first."""
    step = request.POST.get("step")
    if step == "begin" or request.method != "POST":
        return _form_page(request, StageForm(initial=_given(request)))
    form = StageForm(request.POST)
    if not form.is_valid() or step == "edit":
        return _form_page(request, form)
    asked, allowed = form.values(), form.cleaned_data["allow_removals"]
    query = {**reason_of(request), **({"allow_removals": "true"} if allowed else {})}
    preview: dict[str, Any] = {}

    def begin(unit: UnitOfWork) -> None:
        row = stage_asked.begin(unit, asked, allow_removals=allowed)
        preview["shown"] = differences.shortened(of_stage(row))

    proposal = Proposal(
        section=SECTION,
        title=_("New staged publish"),
        apply_label=_("Give it to them"),
        action=begin,
        trail=_trail(),
        done=reverse("web:stages"),
        curl=curl(request, "POST", "/config/stages", query=query, body=asked),
        note=_("These targets get it on top of what all get; all others go on as they are, until it ends."),
        carried=form,
        preview_template="web/parts/stage_preview.html",
        preview=preview,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _given(request: HttpRequest) -> dict[str, Any]:
    return {**StageForm.suggested(), "change": request.POST.get("change", "")}


def _form_page(request: HttpRequest, form: StageForm) -> HttpResponse:
    try:
        found = of_document_patch(read_change(str(form["change"].value() or "{}")))
    except (forms.ValidationError, Refused):
        found = []
    context = {
        "section": SECTION,
        "title": _("New staged publish"),
        "trail": _trail(),
        "form": form,
        "running": stages.running(),
        "shown": differences.shortened(found),
        "call_line": curl(request, "POST", "/config/stages", query=reason_of(request), body=_begins(form)),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/stage_form.html", context, status=status)


def _begins(form: StageForm) -> dict[str, Any]:
    """The body of the REST call as the form stands, where it can be read."""
    typed = {field.html_name: field.value() for field in form if field.value() not in (None, "")}
    asked = StageForm({"change": "{}", "then": "wait", **typed})
    return asked.values() if asked.is_valid() else {"patch": {}, "first": 1}


def _trail(stage_id: int | None = None) -> list[tuple[str, str]]:
    steps = [(reverse("web:stages"), _("Staged publishes"))]
    return steps if stage_id is None else [*steps, (reverse("web:stage", args=[stage_id]), _title(stage_id))]


def _title(stage_id: int) -> str:
    return _("Stage %(number)d") % {"number": stage_id}


@page(Role.ADMIN)
def promote_stage(request: HttpRequest, caller: Caller, stage_id: int) -> HttpResponse:
    row = stages.get(stage_id)
    note = _("All targets get what these have.")
    if row.expression and row.healthy_since is None:
        note += " " + _("It is not known to be healthy: %(said)s") % {"said": row.said or "–"}
    proposal = Proposal(
        section=SECTION,
        title=_("Give stage %(number)d to all") % {"number": stage_id},
        apply_label=_("Give it to all"),
        action=lambda unit: staged.promote(unit, stage_id),
        trail=_trail(stage_id),
        done=reverse("web:stage", args=[stage_id]),
        curl=curl(request, "POST", f"/config/stages/{stage_id}/promote", query=reason_of(request)),
        note=note,
    )
    return confirm(request, caller, proposal)


@page(Role.OPERATOR)
def take_back_stage(request: HttpRequest, caller: Caller, stage_id: int) -> HttpResponse:
    row = stages.get(stage_id)
    proposal = Proposal(
        section=SECTION,
        title=_("Take stage %(number)d back") % {"number": stage_id},
        apply_label=_("Take the change back"),
        action=lambda unit: staged.take_back(unit, stage_id),
        trail=_trail(stage_id),
        done=reverse("web:stage", args=[stage_id]),
        curl=curl(request, "POST", f"/config/stages/{stage_id}/take-back", query=reason_of(request)),
        note=_("Its targets get what all others have."),
        dangerous=True,
        patch=row.patch,
    )
    return confirm(request, caller, proposal)
