"""The page before every write: what would change, why, and the button that does it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from controlplane.core.errors import Refused
from controlplane.core.security import Caller
from controlplane.web.forms.common import ReasonForm, RefusableForm
from controlplane.web.shown import touched
from controlplane.web.writing import (
    Action,
    ChangedMeanwhile,
    MadeAlready,
    Rehearsal,
    carry_out,
    is_made,
    rehearse,
)
from wire.canonical import Document


@dataclass(frozen=True)
class Proposal:
    """A write that a person is asked to confirm.

    `trail` leads from the section to the page that it is about, each step an address and its label; `done` is the
    address after it. `note` says what it does, `whom` to which tenants; `carried` holds what was typed on the page
    before; `curl` is the REST call that does the same. `leave_label` is the way out, where “Cancel” could be read as
    the act itself. Where it cannot be done, `refused_title` and `refused_note` say what that means.
    """

    section: str
    title: str
    apply_label: str
    action: Action
    trail: list[tuple[str, str]]
    done: str
    curl: str
    note: str = ""
    dangerous: bool = False
    # Empty: of a dangerous write it is found from `patch`, or, where that is None, from what it does.
    whom: str = ""
    patch: Document | None = None
    leave_label: str = ""
    carried: RefusableForm | None = None
    refused_title: str = ""
    refused_note: str = ""
    # A template that shows beside the diff what `action` has put into `preview` when it was rehearsed.
    preview_template: str = ""
    preview: dict[str, Any] = field(default_factory=dict)

    @property
    def back(self) -> str:
        return self.trail[-1][0]


def propose(request: HttpRequest, caller: Caller, proposal: Proposal) -> HttpResponse:
    """Show what `proposal` would change; once applied with a reason, go to `done`, which shows its convergence.

    Raises Refused where it cannot be done, so that a form in front can show why at its fields.
    """
    applying = request.POST.get("step") == "apply"
    reason = ReasonForm(request.POST if applying else None)
    notice = ""
    if request.POST.get("step") == "review" and proposal.carried is not None and proposal.carried.is_overtaken:
        notice = _("Someone changed this since you opened the form. Below is what applying would do now.")
    if applying and reason.is_valid():
        digest, change_id = request.POST.get("digest", ""), _change_id(request)
        try:
            unit = carry_out(caller, reason.cleaned_data["reason"], digest, proposal.action, change_id)
        except ChangedMeanwhile:
            notice = _("Someone changed this meanwhile. Below is what applying would do now.")
        except MadeAlready:
            # The button was pressed twice, or the page sent anew: the answer is that of the first time.
            return _done(proposal, change_id if is_made(change_id, published=True) else None)
        else:
            return _done(proposal, unit.change_id if unit.patch else None)
    rehearsal = rehearse(caller, proposal.action)
    context = {
        "section": proposal.section,
        "proposal": proposal,
        "rehearsal": rehearsal,
        "whom": _whom(proposal, rehearsal),
        "reason": reason,
        "notice": notice,
        "change_id": uuid.uuid4(),
    }
    status = HTTPStatus.CONFLICT if notice else HTTPStatus.UNPROCESSABLE_ENTITY if reason.errors else HTTPStatus.OK
    return render(request, "web/review.html", context, status=status)


def _whom(proposal: Proposal, rehearsal: Rehearsal) -> str:
    """Which tenants it touches; of what is not dangerous only where the proposal itself says it."""
    if proposal.whom or not proposal.dangerous or not rehearsal.shown.objects:
        return proposal.whom
    return touched.in_words(rehearsal.patch if proposal.patch is None else proposal.patch)


def _change_id(request: HttpRequest) -> uuid.UUID | None:
    """How the page of review named the change; None where it did not."""
    try:
        return uuid.UUID(request.POST.get("change_id", ""))
    except ValueError:
        return None


def _done(proposal: Proposal, change_id: uuid.UUID | None) -> HttpResponse:
    return redirect(f"{proposal.done}?change={change_id}" if change_id else proposal.done)


def confirm(request: HttpRequest, caller: Caller, proposal: Proposal) -> HttpResponse:
    """As `propose`, for a write without a form in front: a refusal is shown on the same page."""
    try:
        return propose(request, caller, proposal)
    except Refused as refused:
        context = {"section": proposal.section, "proposal": proposal, "refused": refused}
        return render(request, "web/review.html", context, status=int(refused.status))
