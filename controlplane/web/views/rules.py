"""Alerting rules: which there are and what they say, one with its series, and how operators write them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.alerts.models import Severity
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.services import rule_files
from controlplane.alerts.services.rule_pack import is_changed
from controlplane.alerts.services.rules import RULES, describe_series, page_series, shown
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.asked import text_in
from controlplane.web.curl import begun, curl, reason_of
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.rules import AlertRuleForm, NewAlertRuleForm, RulesFileForm
from controlplane.web.listed import Wanted
from controlplane.web.shown import alert_rules
from controlplane.web.views.review import Proposal, confirm, propose

SECTION = "rules"


@page()
def rules(request: HttpRequest, caller: Caller) -> HttpResponse:
    state = text_in(request, "state")
    found = alert_rules.found(Wanted.of(request, keep=["state"]), state)
    context = {
        "section": SECTION,
        "found": found,
        "listed": found.listed,
        "state": state,
        "export": "/api/v1/rules-file",
        "curl_rules": curl(request, "GET", "/rules"),
        "curl_export": curl(request, "GET", "/rules-file"),
    }
    return render(request, "web/rules.html", context)


@page()
def rule(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = RULES.get(name)
    series, more = page_series(name)
    context = {
        "section": SECTION,
        "trail": _trail(),
        "line": alert_rules.RuleLine(shown([row])[0]),
        "severity": row.severity,
        "is_packed": bool(row.pack),
        "is_changed": bool(row.pack) and is_changed(row),
        "series": [{**describe_series(one), "since": one.active_since} for one in series],
        "series_more": more is not None,
        "chart": alert_rules.chart(row.name, row.expr, timezone.now()),
        "chart_width": alert_rules.CHART_WIDTH,
        "chart_height": alert_rules.CHART_HEIGHT,
        "curl_rule": curl(request, "GET", f"/rules/{name}"),
        "curl_series": curl(request, "GET", f"/rules/{name}/series"),
    }
    return render(request, "web/rule.html", context)


@page(Role.OPERATOR)
def new_rule(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = NewAlertRuleForm(request.POST or None, initial={"severity": Severity.WARNING, "enabled": True})
    title = _("New rule")
    begins = {"name": "NAME", **begun(form, RULES.fields.model_fields)}
    first = curl(request, "POST", "/rules", query=reason_of(request), body=begins)

    def change(unit: UnitOfWork) -> None:
        RULES.create(unit, form.cleaned_data["name"], form.values())

    if not _is_sent(request, form):
        return _form_page(request, form, title, first)
    name = form.cleaned_data["name"]
    line = curl(request, "POST", "/rules", query=reason_of(request), body={"name": name, **form.values()})
    return _proposed(request, caller, form, title, change, line, reverse("web:rules"))


@page(Role.OPERATOR)
def edit_rule(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    current = RULES.describe(RULES.get(name))
    form = AlertRuleForm(request.POST or None, initial=current)
    form.row = current
    title = _("Change the rule %(name)s") % {"name": name}
    begins = begun(form, RULES.fields.model_fields)
    first = curl(request, "PATCH", f"/rules/{name}", query=reason_of(request), body=begins)
    if not _is_sent(request, form):
        return _form_page(request, form, title, first)
    values = {field: value for field, value in form.values().items() if value != current[field]}

    def change(unit: UnitOfWork) -> None:
        RULES.update(unit, name, values)

    line = curl(request, "PATCH", f"/rules/{name}", query=reason_of(request), body=values)
    return _proposed(request, caller, form, title, change, line, reverse("web:rule", args=[name]))


@page(Role.OPERATOR)
def switch_rule(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    """On where it is off, and off where it is on."""
    enabled = not RULES.get(name).enabled

    def change(unit: UnitOfWork) -> None:
        RULES.update(unit, name, {"enabled": enabled})

    proposal = Proposal(
        section=SECTION,
        title=(_("Switch on %(name)s") if enabled else _("Switch off %(name)s")) % {"name": name},
        apply_label=_("Switch on") if enabled else _("Switch off"),
        action=change,
        trail=_trail(),
        done=reverse("web:rule", args=[name]),
        curl=curl(request, "PATCH", f"/rules/{name}", query=reason_of(request), body={"enabled": enabled}),
        note="" if enabled else _("What it says now ends, and receivers are told so."),
        dangerous=not enabled,
    )
    return confirm(request, caller, proposal)


@page(Role.OPERATOR)
def delete_rule(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    row = RULES.find(name)

    def change(unit: UnitOfWork) -> None:
        RULES.delete(unit, name)

    note = [_("What it says now ends, and receivers are told so.")]
    if row and row.pack:
        note.append(_("It does not come again with a later version."))
    proposal = Proposal(
        section=SECTION,
        title=_("Delete the rule %(name)s") % {"name": name},
        apply_label=_("Delete"),
        action=change,
        trail=[*_trail(), (reverse("web:rule", args=[name]), name)],
        done=reverse("web:rules"),
        curl=curl(request, "DELETE", f"/rules/{name}", query=reason_of(request)),
        note=" ".join(note),
        dangerous=True,
    )
    return confirm(request, caller, proposal)


@page(Role.OPERATOR)
def import_rules(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = RulesFileForm(request.POST or None)
    title = _("Import a rule file")
    first = _import_line(request)
    if not _is_sent(request, form):
        return _form_page(request, form, title, first)
    replace, skip = form.cleaned_data["replace"], form.cleaned_data["skip"]
    try:
        given = read_yaml(form.cleaned_data["rule_file"].encode())
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form, title, first)

    def change(unit: UnitOfWork) -> None:
        rule_files.take(unit, given, replace=replace, skip=skip)

    line = _import_line(request, replace=replace, skip=skip)
    return _proposed(request, caller, form, title, change, line, reverse("web:rules"))


def _import_line(request: HttpRequest, *, replace: bool = False, skip: bool = False) -> str:
    chosen = {"replace": replace, "skip": skip}
    asked = {**reason_of(request), **{name: "true" for name, is_chosen in chosen.items() if is_chosen}}
    line = curl(request, "POST", "/rules-file", query=asked)
    return line + " \\\n  -H 'Content-Type: text/yaml' --data-binary @rules.yml"


def _is_sent(request: HttpRequest, form: RefusableForm) -> bool:
    return request.method == "POST" and form.is_valid() and request.POST.get("step") != "edit"


def _proposed(
    request: HttpRequest, caller: Caller, form: RefusableForm, title: str, change: Any, line: str, done: str
) -> HttpResponse:
    proposal = Proposal(
        section=SECTION,
        title=title,
        apply_label=_("Apply"),
        action=change,
        trail=_trail(),
        done=done,
        curl=line,
        carried=form,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
    return _form_page(request, form, title, line)


def _form_page(request: HttpRequest, form: RefusableForm, title: str, line: str) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    context = {"section": SECTION, "form": form, "title": title, "trail": _trail(), "done": reverse("web:rules")}
    context["call_line"] = line
    return render(request, "web/alert_rule_form.html", context, status=status)


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:rules"), _("Rules"))]
