"""Revisions: the list, one with its diff, and the way back."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from http import HTTPStatus
from typing import Any

from django import forms
from django.db.models import Count, Max, Min
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.configs import history, rollback
from controlplane.configs import revisions as revisions_read
from controlplane.configs.models import Revision
from controlplane.configs.public import public_form
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.tenants.models import TenantKey
from controlplane.web import differences
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.forms.common import RefusableForm
from controlplane.web.labels import actor_label
from controlplane.web.panels import shared_panel
from controlplane.web.views.review import Proposal, confirm
from wire.canonical import MAX_INTEGER, Document

ROWS_PER_PAGE = 50
# A rollback or an import may hold thousands of entries; a page shows the first of them.
AUDIT_ROWS = 200


def _number_field(label: Any) -> forms.IntegerField:
    widget = forms.TextInput(attrs={"inputmode": "numeric"})
    return forms.IntegerField(label=label, min_value=1, max_value=MAX_INTEGER, widget=widget)


@page()
def revisions(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {
        "section": "revisions",
        **followed(request, caller),
        "newest": _newest(),
        "curl_revisions": curl(request, "GET", "/revisions"),
        "curl_configuration": curl(request, "GET", "/config", query={"format": "yaml"}),
    }
    return render(request, "web/revisions.html", {**context, **_list(number_in(request, "before"))})


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    return shared_panel("web/parts/revisions.html", _list)


def _list(before: int | None = None) -> dict[str, Any]:
    found, after = revisions_read.page(ROWS_PER_PAGE, before)
    following = after and f"{reverse('web:revisions')}?before={after}"
    # Only the first page shows what is new.
    return {"rows": _lines(found), "newest": _newest(), "paged": before is not None, "next_address": following}


def _lines(found: list[Document]) -> list[dict[str, Any]]:
    """Each revision with the first of what was done in it, and how much more there was."""
    audit = AuditEntry.objects.filter(revision__in=[row["number"] for row in found])
    counted = audit.values("revision").annotate(first=Min("pk"), count=Count("pk"))
    done = {row["revision"]: row for row in counted}
    entries = AuditEntry.objects.in_bulk([row["first"] for row in done.values()])
    actors = defaultdict(list)
    for number, kind, name in audit.order_by("actor").values_list("revision", "actor_kind", "actor").distinct():
        actors[number].append(actor_label(kind, name))
    lines = []
    for row in found:
        what = done.get(row["number"])
        lines.append(
            {
                **row,
                "published_at": datetime.fromisoformat(row["published_at"]),
                "entry": what and entries[what["first"]],
                "more": what["count"] - 1 if what else 0,
                "actors": actors[row["number"]],
            }
        )
    return lines


def _newest() -> int:
    return Revision.objects.aggregate(newest=Max("number"))["newest"] or 0


@page()
def revision(request: HttpRequest, caller: Caller, number: int) -> HttpResponse:
    row = history.get(number)
    patch, inverse = public_form(row.patch), public_form(row.inverse)
    changed = differences.of_patch(patch, inverse, _prefixes([*(patch.get("keys") or {})]))
    context = {
        "section": "revisions",
        "number": number,
        "is_state": bool(patch) and not rollback.restores(patch),
        "before": number - 1,
        "newest": _newest(),
        "revision": row,
        "shown": differences.shortened(changed),
        "values": sum(len(each.values) for each in changed),
        "entries": AuditEntry.objects.filter(revision=number).order_by("pk")[:AUDIT_ROWS],
        **followed(request, caller),
        "curl_revision": curl(request, "GET", f"/revisions/{number}"),
    }
    return render(request, "web/revision.html", context)


def _prefixes(hashes: list[str]) -> dict[str, str]:
    """How the keys begin that are still there. A patch that only blocks one does not say it."""
    found = TenantKey.objects.filter(key_hash__in=hashes[: differences.OBJECTS_SHOWN])
    return dict(found.values_list("key_hash", "prefix"))


class CompareForm(RefusableForm):
    """Two revisions, named as in the address; `from` is a word of the language."""

    to = _number_field(gettext_lazy("To revision"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields = {"from": _number_field(gettext_lazy("From revision")), **self.fields}


@page()
def differences_page(request: HttpRequest, caller: Caller) -> HttpResponse:
    """Any two revisions; where none are named, the last two."""
    newest = _newest()
    typed = {name: request.GET.get(name, "") for name in ("from", "to")}
    if not any(typed.values()) and newest > 1:
        typed = {"from": str(newest - 1), "to": str(newest)}
    form = CompareForm(typed if any(typed.values()) else None)
    context: dict[str, Any] = {
        "section": "revisions",
        "title": _("Compare two revisions"),
        "trail": [(reverse("web:revisions"), _("Revisions"))],
        "form": form,
        "newest": newest,
    }
    if form.is_bound and form.is_valid():
        try:
            context |= _compared(request, form.cleaned_data["from"], form.cleaned_data["to"])
        except Refused as refused:
            form.add_error(None, refused.detail)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    return render(request, "web/differences.html", context, status=status)


def _compared(request: HttpRequest, before: int, after: int) -> dict[str, Any]:
    there, back = history.both_ways(before, after)
    patch, inverse = public_form(there), public_form(back)
    changed = differences.of_patch(patch, inverse, _prefixes([*(patch.get("keys") or {})]))
    return {
        "from": before,
        "to": after,
        "shown": differences.shortened(changed),
        "values": sum(len(each.values) for each in changed),
        "curl_diff": curl(request, "GET", f"/revisions/{before}/diff", query={"to": after}),
    }


@page(Role.OPERATOR)
def roll_back(request: HttpRequest, caller: Caller, number: int) -> HttpResponse:
    history.get(number)
    everything = reverse("web:revisions")

    def change(unit: UnitOfWork) -> None:
        rollback.roll_back(unit, number)

    proposal = Proposal(
        section="revisions",
        title=_("Roll back to revision %(number)d") % {"number": number},
        apply_label=_("Roll back"),
        action=change,
        trail=[
            (everything, _("Revisions")),
            (reverse("web:revision", args=[number]), _("Revision %(number)d") % {"number": number}),
        ],
        # The new revision has no number yet; the list shows it, and how far it has come.
        done=everything,
        curl=curl(request, "POST", f"/revisions/{number}/rollback", query=reason_of(request)),
        note=_(
            "This makes a new revision with the old content. Keys, engines, cordons and overrides stay as they are "
            "now; only the keys of a tenant that is removed go with it."
        ),
        dangerous=True,
        refused_title=_("Cannot be rolled back"),
        refused_note=_("Nothing was changed: the newest revision stays in force, on every target."),
    )
    return confirm(request, caller, proposal)
