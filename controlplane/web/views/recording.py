"""Recording rules: what is recorded, how the last evaluations went, and the rule file, changed by operators."""

from __future__ import annotations

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.telemetry.recording import rules
from controlplane.telemetry.recording.fields import checked
from controlplane.telemetry.recording.rule_text import read_rules, write_rules
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.recording_rules import RuleFileForm
from controlplane.web.shown.recording import groups
from controlplane.web.views.review import Proposal, confirm, propose


@page()
def recording_rules(request: HttpRequest, caller: Caller) -> HttpResponse:
    document = rules.current()
    shown = groups(document)
    context = {
        "section": "recording_rules",
        "groups": shown,
        "is_edited": rules.is_edited(),
        "evaluated": any(line.evaluated_at for group in shown for line in group.lines),
        "rule_file": write_rules(document),
        "curl_rules": curl(request, "GET", "/recording-rules"),
        "curl_state": curl(request, "GET", "/recording-rules/state"),
    }
    return render(request, "web/recording_rules.html", context)


@page(Role.OPERATOR)
def edit_recording_rules(request: HttpRequest, caller: Caller) -> HttpResponse:
    current = {"rule_file": write_rules(rules.current())}
    form = RuleFileForm(request.POST or None, initial=current)
    form.row = current
    if not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form)
    try:
        document = checked(read_rules(form.cleaned_data["rule_file"].encode()))

        def change(unit: UnitOfWork) -> None:
            rules.replace(unit, document)

        proposal = Proposal(
            section="recording_rules",
            title=_("Change the recording rules"),
            apply_label=_("Apply"),
            action=change,
            trail=_trail(),
            done=reverse("web:recording_rules"),
            curl=curl(request, "PUT", "/recording-rules", query=reason_of(request), body=document),
            note=_("Series of rules that are gone end; those of rules that keep their name and labels go on."),
            carried=form,
        )
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _form_page(request: HttpRequest, form: RuleFileForm) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    line = curl(request, "GET", "/recording-rules")
    context = {"section": "recording_rules", "form": form, "trail": _trail(), "call_line": line}
    return render(request, "web/recording_form.html", context, status=status)


@page(Role.OPERATOR)
def reset_recording_rules(request: HttpRequest, caller: Caller) -> HttpResponse:
    proposal = Proposal(
        section="recording_rules",
        title=_("Go back to the built-in recording rules"),
        apply_label=_("Go back"),
        action=rules.reset,
        trail=_trail(),
        done=reverse("web:recording_rules"),
        curl=curl(request, "DELETE", "/recording-rules", query=reason_of(request)),
        note=_("They are followed from version to version. Series of rules that are gone end."),
        dangerous=True,
    )
    return confirm(request, caller, proposal)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:recording_rules"), _("Recording rules"))]
