"""Batches: how far each is, and an end to one."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.batches import batches as service
from controlplane.batches.models import OPEN, Batch, Status
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Role
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import Caller
from controlplane.web.access import page
from controlplane.web.asked import text_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.shown.touched import tenants_in_words
from controlplane.web.states import look_of
from controlplane.web.views.review import Proposal, confirm

ROWS_PER_PAGE = 50


class Line(NamedTuple):
    """One batch as the page shows it."""

    row: Batch

    @property
    def ended(self) -> int:
        return self.row.completed + self.row.failed

    @property
    def percent(self) -> int | None:
        """How much of it has ended; None before its lines are counted."""
        return 100 * self.ended // self.row.total if self.row.total else None

    @property
    def is_open(self) -> bool:
        return self.row.status in OPEN

    @property
    def may_be_cancelled(self) -> bool:
        return self.row.status in (Status.VALIDATING, Status.IN_PROGRESS)

    @property
    def said(self) -> str:
        """What keeps it, or why it failed."""
        return self.row.said or "; ".join(error["message"] for error in self.row.errors[:3])


@page(judge=any_of_theirs)
def batches(request: HttpRequest, caller: Caller) -> HttpResponse:
    status, tenant, before = (text_in(request, name) for name in ("status", "tenant", "before"))
    status = status if status in Status.values else ""
    rows, more = service.page(caller.tenants, limit=ROWS_PER_PAGE, after=before, status=status, tenant=tenant)
    wanted = {name: value for name, value in (("status", status), ("tenant", tenant)) if value}
    following = urlencode({**wanted, "before": rows[-1].pk}) if more else None
    context: dict[str, Any] = {
        "section": "batches",
        "lines": [Line(row) for row in rows],
        "status": status,
        "tenant": tenant,
        "statuses": [(value, look_of(value).label) for value in Status.values],
        "paged": bool(before),
        "next_address": following and f"{reverse('web:batches')}?{following}",
        **followed(request, caller),
        "curl_batches": curl(request, "GET", "/batches", query=wanted),
    }
    return render(request, "web/batches.html", context)


@page(Role.OPERATOR, judge=any_of_theirs)
def cancel_batch(request: HttpRequest, caller: Caller, batch_id: str) -> HttpResponse:
    batch = service.get(batch_id, caller.tenants)
    back = reverse("web:batches")

    def cancel(unit: UnitOfWork) -> None:
        service.cancel_by_person(unit, batch_id, caller.tenants)

    proposal = Proposal(
        section="batches",
        title=_("Cancel a batch of %(tenant)s") % {"tenant": batch.tenant},
        apply_label=_("Cancel it"),
        leave_label=_("Back"),
        action=cancel,
        trail=[(back, _("Batches"))],
        done=back,
        curl=curl(request, "POST", f"/batches/{batch_id}/cancel", query=reason_of(request)),
        note=_("No further line of it starts; those that run have ten minutes. What is done stays in its output file."),
        dangerous=True,
        whom=tenants_in_words([batch.tenant]),
    )
    return confirm(request, caller, proposal)
