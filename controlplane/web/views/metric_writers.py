"""Metric writers: a Prometheus, Alloy or vmagent that writes its series here with its own token."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.telemetry.models import MetricWriter
from controlplane.telemetry.writers import METRIC_WRITERS
from controlplane.web.access import page
from controlplane.web.asked import text_in
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.writer import NewWriterForm, RotateWriterForm, WriterForm
from controlplane.web.views.noun_pages import NounPages
from controlplane.web.views.secret import secret_page

ROWS_PER_PAGE = 100
_PAGES = NounPages(
    METRIC_WRITERS, WriterForm, WriterForm, "/metric-writers", "web:metric_writers", "metric_writers",
    gettext_lazy("Metric writers"), gettext_lazy("New metric writer"),
)  # fmt: skip


@page()
def metric_writers(request: HttpRequest, caller: Caller) -> HttpResponse:
    after = text_in(request, "after")
    rows, following = METRIC_WRITERS.page(ROWS_PER_PAGE, after)
    context = {
        "section": "metric_writers",
        "lines": [(row, _state(row)) for row in rows],
        "next_address": following and f"{reverse('web:metric_writers')}?after={following}",
        "curl_writers": curl(request, "GET", "/metric-writers"),
    }
    return render(request, "web/metric_writers.html", context)


def _state(row: MetricWriter) -> str:
    if row.blocked:
        return "blocked"
    return "expired" if row.expires_at is not None and row.expires_at <= timezone.now() else "active"


@page(Role.ADMIN)
def new_metric_writer(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = NewWriterForm(request.POST or None)

    def create(unit: UnitOfWork) -> str:
        fields = {name: form.cleaned_data[name] for name in ("matchers", "expires_at")}
        return METRIC_WRITERS.create(unit, form.cleaned_data["name"], fields).secret or ""

    body = {"name": "NAME", "matchers": {"cluster": "lab"}}
    frame = {
        **_frame(_("New metric writer"), _("Make its token")),
        "note": _("Its token is shown once, on the next page. It sends it as bearer token of remote write."),
        "line": curl(request, "POST", "/metric-writers", query=reason_of(request), body=body),
    }
    return secret_page(request, caller, form, create, "web/secret_form.html", frame, _shown)


@page(Role.ADMIN)
def edit_metric_writer(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    return _PAGES.edit(request, caller, name)


@page(Role.ADMIN)
def rotate_metric_writer(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    METRIC_WRITERS.get(name)
    form = RotateWriterForm(request.POST or None)

    def rotate(unit: UnitOfWork) -> str:
        fields = {field: form.cleaned_data[field] for field in ("overlap_seconds", "expires_at")}
        return METRIC_WRITERS.rotate(unit, name, fields).secret or ""

    body = {"overlap_seconds": 86_400}
    frame = {
        **_frame(_("Rotate the token of %(name)s") % {"name": name}, _("Make its token")),
        "note": _("Until it sends the new token, and once the old one has ended, nothing that it sends is taken."),
        "line": curl(request, "POST", f"/metric-writers/{name}/rotate", query=reason_of(request), body=body),
    }
    return secret_page(request, caller, form, rotate, "web/secret_form.html", frame, _shown)


@page(Role.ADMIN)
def delete_metric_writer(request: HttpRequest, caller: Caller, name: str) -> HttpResponse:
    note = _(
        "Nothing that it sends is taken from then on; what is stored stays. Charts and rules of its series go dry."
    )
    return _PAGES.delete(request, caller, name, note)


def _frame(title: str, button: str) -> dict[str, Any]:
    home = reverse("web:metric_writers")
    trail = [(home, _("Metric writers"))]
    return {"section": "metric_writers", "title": title, "button": button, "trail": trail, "done": home}


def _shown(unit: UnitOfWork) -> dict[str, Any]:
    return {"warning": " ".join(warning.message for warning in unit.warnings)}
