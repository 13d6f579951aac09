"""Revisions: the list, one with its diff, and the way back."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.configs import history, rollback
from controlplane.configs.models import Revision
from controlplane.configs.public import public_form
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import AuditEntry, Role
from controlplane.core.security import Caller
from controlplane.web import differences
from controlplane.web.access import page
from controlplane.web.convergence import change_of, progress_of
from controlplane.web.curl import curl
from controlplane.web.panels import shared_panel
from controlplane.web.rendering import render_page
from controlplane.web.views.review import Proposal, confirm
from controlplane.web.views.tenants import REASON_HERE

ROWS_PER_PAGE = 50
# A rollback or an import may hold thousands of entries; a page shows the first of them.
AUDIT_ROWS = 200


@page()
def revisions(request: HttpRequest, caller: Caller) -> HttpResponse:
    context = {"section": "revisions", "curl_revisions": curl(request, "GET", "/revisions")}
    return render_page(request, "web/revisions.html", {**context, **_list(request.GET.get("before", ""))})


@page()
def panel(request: HttpRequest, caller: Caller) -> HttpResponse:
    return shared_panel("web/parts/revisions.html", _list)


def _list(before: str = "") -> dict[str, Any]:
    found = Revision.objects.order_by("-number").only("number", "published_at", "rollback_to")
    if before.isascii() and before.isdigit() and len(before) < 19:
        found = found.filter(number__lt=int(before))
    rows = list(found[: ROWS_PER_PAGE + 1])
    shown = rows[:ROWS_PER_PAGE]
    following = f"{reverse('web:revisions')}?before={shown[-1].number}" if len(rows) > ROWS_PER_PAGE else None
    # Only the first page shows what is new.
    return {"rows": _lines(shown), "newest": _newest(), "paged": bool(before), "next_address": following}


def _lines(rows: list[Revision]) -> list[dict[str, Any]]:
    """Each revision with who, why and the first of what: one query for the page."""
    by_revision: dict[int, list[AuditEntry]] = defaultdict(list)
    entries = AuditEntry.objects.filter(revision__in=[row.number for row in rows]).order_by("pk")
    for entry in entries.defer("before", "after"):
        by_revision[entry.revision or 0].append(entry)
    lines = []
    for row in rows:
        audit = by_revision[row.number]
        lines.append(
            {
                "number": row.number,
                "published_at": row.published_at,
                "rollback_to": row.rollback_to,
                "entry": audit[0] if audit else None,
                "more": max(0, len(audit) - 1),
                "actors": list(dict.fromkeys(entry.actor for entry in audit)),
                "reasons": list(dict.fromkeys(entry.reason for entry in audit)),
            }
        )
    return lines


def _newest() -> int:
    return Revision.objects.aggregate(newest=Max("number"))["newest"] or 0


@page()
def revision(request: HttpRequest, caller: Caller, number: int) -> HttpResponse:
    row = history.get(number)
    change = change_of(request)
    context = {
        "section": "revisions",
        "number": number,
        "before": number - 1,
        "newest": _newest(),
        "revision": row,
        "lines": differences.of_patch(public_form(row.patch), public_form(row.inverse)),
        "entries": AuditEntry.objects.filter(revision=number).order_by("pk")[:AUDIT_ROWS],
        "change": change,
        "convergence": change and progress_of(change),
        "curl_revision": curl(request, "GET", f"/revisions/{number}"),
    }
    return render_page(request, "web/revision.html", context)


@page(Role.OPERATOR)
def roll_back(request: HttpRequest, caller: Caller, number: int) -> HttpResponse:
    history.get(number)
    back = reverse("web:revision", args=[number])

    def change(unit: UnitOfWork) -> None:
        rollback.roll_back(unit, number)

    proposal = Proposal(
        section="revisions",
        title=_("Roll back to revision %(number)d") % {"number": number},
        apply_label=_("Roll back"),
        action=change,
        back=back,
        back_label=_("Revision %(number)d") % {"number": number},
        done=back,
        curl=curl(request, "POST", f"/revisions/{number}/rollback", query=REASON_HERE),
        note=_("This makes a new revision with the old content. Keys, engines and cordons stay as they are now."),
        dangerous=True,
    )
    return confirm(request, caller, proposal)
