"""The diagnosis: the grid of bottlenecks, one finding with its levers, what levers did, and policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound, Refused
from controlplane.core.models import Role
from controlplane.core.preconditions import entity_tag
from controlplane.core.security import Caller
from controlplane.diagnosis import standing
from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import Finding
from controlplane.diagnosis.models import Proposal as Lever
from controlplane.diagnosis.services import proposals, rounds
from controlplane.diagnosis.services.policies import LEVER_POLICIES
from controlplane.diagnosis.texts import in_language
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.diagnosis import LeverPolicyForm, NewLeverPolicyForm
from controlplane.web.listed import Wanted, listed
from controlplane.web.shown import diagnosis as shown
from controlplane.web.shown.places import place
from controlplane.web.views.review import Proposal, confirm, propose

ROWS_PER_PAGE = 50


@dataclass(frozen=True)
class Verb:
    """What a person can do with a lever."""

    label: Any
    note: Any
    act: Callable[[UnitOfWork, int, str], Lever]
    dangerous: bool = False


VERBS = {
    "apply": Verb(
        shown.VERB_LABELS["apply"],
        gettext_lazy(
            "All of it is one change. Then it is watched: where the finding does not clear, it is offered back."
        ),
        proposals.apply,
    ),
    "revert": Verb(
        shown.VERB_LABELS["revert"],
        gettext_lazy("Exactly what the lever wrote becomes as it was before; nothing else."),
        proposals.revert,
        dangerous=True,
    ),
    "dismiss": Verb(
        shown.VERB_LABELS["dismiss"],
        gettext_lazy(
            "An offer is not made again while the finding stands. A change that is offered back stays as it is."
        ),
        proposals.dismiss,
    ),
}


@page()
def diagnosis(request: HttpRequest, caller: Caller) -> HttpResponse:
    now = timezone.now()
    cards = [shown.CardLine(card, now) for card in standing.cards(now)]
    context = {
        "section": "diagnosis",
        "cards": cards,
        "found": sum(bool(line.card.found) for line in cards),
        "last": rounds.last(),
        "strip_width": shown.STRIP_WIDTH,
        "curl_diagnosis": curl(request, "GET", "/diagnosis"),
    }
    return render(request, "web/diagnosis.html", context)


@page()
def finding(request: HttpRequest, caller: Caller, finding_id: int) -> HttpResponse:
    row, now = standing.get(finding_id), timezone.now()
    context = {
        "section": "diagnosis",
        "finding": row,
        "summary": in_language(row.summary),
        "detector": _detector(row),
        "title": _title(row),
        "seen_at": standing.seen_at(row, standing.looked_at()),
        "evidence": shown.evidence_lines(row),
        # What the page asks for anew every few seconds is not these.
        "charts": [] if request.headers.get("HX-Request") else shown.charts(row, now),
        "chart_width": shown.CHART_WIDTH,
        "chart_height": shown.CHART_HEIGHT,
        "levers": shown.lever_lines(row.proposals.all()),
        **followed(request, caller),
        "trail": _trail(),
        "curl_finding": curl(request, "GET", f"/diagnosis/findings/{finding_id}"),
    }
    return render(request, "web/finding.html", context)


def _detector(row: Finding) -> Detector | None:
    """None: it is no more, and its findings are kept for a while."""
    return next((each for each in DETECTORS if each.name == row.detector), None)


def _title(row: Finding) -> str:
    detector = _detector(row)
    return f"{detector.title if detector else row.detector} · {place(row.subject)}"


@page(Role.OPERATOR)
def change_lever(request: HttpRequest, caller: Caller, finding_id: int, key: str, verb: str) -> HttpResponse:
    """`of` in the address names the numbers that the person is shown, since they follow what is measured."""
    if verb not in VERBS:
        raise NotFound(_("There is nothing of that name to do with a lever."))
    row, chosen, lever = standing.get(finding_id), VERBS[verb], proposals.find(finding_id, key)
    back, seen = reverse("web:finding", args=[finding_id]), request.GET.get("of", "")
    if request.method == "GET" and seen != numbers_of(lever):
        return redirect(f"{request.path}?{urlencode({'of': numbers_of(lever)})}")

    def change(unit: UnitOfWork) -> None:
        if seen != numbers_of(proposals.find(finding_id, key)):
            raise Conflict(_("Its numbers followed what was measured meanwhile. Go back and look at it again."))
        chosen.act(unit, finding_id, key)

    proposal = Proposal(
        section="diagnosis",
        title=f"{chosen.label}: {in_language(lever.title)}",
        apply_label=str(chosen.label),
        action=change,
        trail=[*_trail(), (back, _title(row))],
        done=back,
        curl=curl(request, "POST", f"/diagnosis/findings/{finding_id}/levers/{key}/{verb}", query=reason_of(request)),
        note=str(chosen.note),
        dangerous=chosen.dangerous,
        refused_title=_("Cannot be done now"),
    )
    return confirm(request, caller, proposal)


def numbers_of(lever: Lever) -> str:
    """A name for what applying the lever would do."""
    return entity_tag({"edits": lever.edits, "commands": lever.commands}).strip('"')


@page()
def levers(request: HttpRequest, caller: Caller) -> HttpResponse:
    """What levers were offered, and what became of them; the policies that apply some by themselves."""
    start = number_in(request, "before")
    rows, following = standing.page_proposals(limit=ROWS_PER_PAGE, after=start)
    wanted = Wanted.of(request, "policies_", ("before",))
    policies = LEVER_POLICIES.queryset().filter(name__icontains=wanted.text).order_by("name")
    context = {
        "section": "diagnosis",
        "rows": [(row, in_language(row.title)) for row in rows],
        "paged": start is not None,
        "next_address": following and f"{reverse('web:levers')}?before={following}",
        "listed": listed(policies, wanted),
        "trail": _trail(),
        "curl_levers": curl(request, "GET", "/diagnosis/levers"),
        "curl_policies": curl(request, "GET", "/lever-policies"),
    }
    return render(request, "web/levers.html", context)


@page(Role.ADMIN)
def new_lever_policy(request: HttpRequest, caller: Caller) -> HttpResponse:
    """`?detector=…&lever=…` fills these in."""
    given = {name: request.GET[name] for name in ("detector", "lever") if name in request.GET}
    form = NewLeverPolicyForm(request.POST or None, initial={**LeverPolicyForm.defaults(), **given})

    def create(unit: UnitOfWork) -> None:
        values = form.values()
        LEVER_POLICIES.create(unit, values.pop("name"), values)

    return _policy_page(
        request, caller, form, create, title=_("New policy"), line=("POST", "/lever-policies"), values=form.values
    )


@page(Role.ADMIN)
def edit_lever_policy(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = LEVER_POLICIES.describe(LEVER_POLICIES.get(name))
    form = LeverPolicyForm(request.POST or None, initial=LeverPolicyForm.shown(current))
    form.row = current

    def values() -> dict[str, Any]:
        return {field: value for field, value in form.values().items() if value != current[field]}

    return _policy_page(
        request,
        caller,
        form,
        lambda unit: LEVER_POLICIES.update(unit, name, values()),
        title=_("Change the policy %(name)s") % {"name": name},
        line=("PATCH", f"/lever-policies/{name}"),
        values=values,
    )


@page(Role.ADMIN)
def delete_lever_policy(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    proposal = Proposal(
        section="diagnosis",
        title=_("Delete the policy %(name)s") % {"name": name},
        apply_label=_("Delete"),
        action=lambda unit: LEVER_POLICIES.delete(unit, name),
        trail=_trail_of_levers(),
        done=reverse("web:levers"),
        curl=curl(request, "DELETE", f"/lever-policies/{name}", query=reason_of(request)),
        note=_("What it has applied stays, and is judged as before; it takes nothing back by itself any more."),
        dangerous=True,
    )
    return confirm(request, caller, proposal)


def _policy_page(
    request: HttpRequest,
    caller: Caller,
    form: LeverPolicyForm,
    act: Callable[[UnitOfWork], Any],
    *,
    title: str,
    line: tuple[str, str],
    values: Callable[[], dict[str, Any]],
) -> HttpResponse:
    if request.method == "POST" and form.is_valid() and request.POST.get("step") != "edit":
        method, path = line
        proposal = Proposal(
            section="diagnosis",
            title=title,
            apply_label=_("Apply"),
            action=act,
            trail=_trail_of_levers(),
            done=reverse("web:levers"),
            curl=curl(request, method, path, query=reason_of(request), body=values()),
            note=_("While it is on, nobody is asked: the change is made, watched, and noted under its name."),
            carried=form,
        )
        try:
            return propose(request, caller, proposal)
        except Refused as refused:
            form.take_refusal(refused)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    call_line = curl(request, *line, query=reason_of(request), body=begun(form))
    context = {"section": "diagnosis", "form": form, "title": title, "trail": _trail_of_levers()}
    context["call_line"] = call_line
    return render(request, "web/lever_policy_form.html", context, status=status)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:diagnosis"), _("Diagnosis"))]


def _trail_of_levers() -> list[tuple[str, str]]:
    return [*_trail(), (reverse("web:levers"), _("Levers"))]
