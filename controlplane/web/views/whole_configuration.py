"""The whole configuration as one text: applied from a form, with all that it would change before."""

from __future__ import annotations

from http import HTTPStatus

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.configs.bulk import apply_document
from controlplane.configs.document import document_now
from controlplane.configs.document_text import read_document
from controlplane.configs.edits import checked_document
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import RefusableForm
from controlplane.web.views.review import Proposal, propose

SECTION = "revisions"


class ConfigurationForm(RefusableForm):
    document = forms.CharField(
        label=gettext_lazy("Configuration (YAML or JSON)"),
        strip=False,
        widget=forms.Textarea(attrs={"rows": 20, "class": "code", "spellcheck": "false", "wrap": "off"}),
        help_text=gettext_lazy(
            "As it is downloaded. A section that is given is whole: what it lacks is removed. "
            "One that is left out stays."
        ),
    )
    allow_removals = forms.BooleanField(
        label=gettext_lazy("Also where keys or engines go, or many entries of a section"), required=False
    )


@page(Role.ADMIN)
def import_configuration(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = ConfigurationForm(request.POST or None)
    if not form.is_bound or not form.is_valid() or request.POST.get("step") == "edit":
        return _form_page(request, form)
    text, allowed = form.cleaned_data["document"], form.cleaned_data["allow_removals"]
    is_json = text.lstrip().startswith("{")
    try:
        checked = checked_document(read_document(text.encode(), json=is_json))
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)

    def change(unit: UnitOfWork) -> None:
        apply_document(unit, document_now(), checked, allow_removals=allowed)

    query = {**reason_of(request), **({"allow_removals": "true"} if allowed else {})}
    line = curl(request, "PUT", "/config", query=query)
    kind, file = ("application/json", "headworks.json") if is_json else ("application/yaml", "headworks.yaml")
    line += f" \\\n  -H 'Content-Type: {kind}' --data-binary @{file}"
    proposal = Proposal(
        section=SECTION,
        title=_title(),
        apply_label=_("Apply it"),
        action=change,
        trail=_trail(),
        done=reverse("web:revisions"),
        curl=line,
        note=_("All of it becomes one revision, or none of it."),
        carried=form,
        # What a section lacks is removed.
        dangerous=True,
    )
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        form.take_refusal(refused)
        return _form_page(request, form)


def _form_page(request: HttpRequest, form: ConfigurationForm) -> HttpResponse:
    context = {
        "section": SECTION,
        "title": _title(),
        "trail": _trail(),
        "done": reverse("web:revisions"),
        "form": form,
        "curl_configuration": curl(request, "GET", "/config", query={"format": "yaml"}),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/configuration_form.html", context, status=status)


def _title() -> str:
    return _("Apply a whole configuration")


def _trail() -> list[tuple[str, str]]:
    return [(reverse("web:revisions"), _("Revisions"))]
