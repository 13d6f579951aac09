"""REST of the diagnosis: the grid, findings, their levers, and the policies that apply levers by themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import IF_MATCH, Current, tagged
from controlplane.core.rest import Filter, Id, Limit, Page, add_noun
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.diagnosis import standing
from controlplane.diagnosis.models import ProposalState
from controlplane.diagnosis.services import proposals
from controlplane.diagnosis.services.policies import LEVER_POLICIES
from wire.canonical import MAX_INTEGER, Document

router = Router(tags=["diagnosis"])
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]
_LEVER = "/diagnosis/findings/{finding_id}/levers/{key}"


@router.get("/diagnosis", auth=viewer, response=dict[str, Any], summary="What limits the fleet now")
def read_diagnosis(request: HttpRequest) -> Document:
    """Every detector: `found`, `clear`, `blind` (why) or `waiting`, with what it found in the last 24 hours."""
    return standing.grid()


@router.get("/diagnosis/findings", auth=viewer, response=Page, summary="List findings")
def list_findings(
    request: HttpRequest,
    detector: Filter = "",
    state: Literal["open", "cleared", ""] = "",
    limit: Limit = PAGE_ROWS,
    after: Before = None,
) -> Page:
    """Newest first, without their levers."""
    found, following = standing.page(detector=detector, state=state, limit=limit, after=after)
    looked = standing.looked_at()
    return Page(items=[standing.describe(row, standing.seen_at(row, looked)) for row in found], next=following)


@router.get("/diagnosis/findings/{finding_id}", auth=viewer, response=dict[str, Any], summary="Read finding")
def read_finding(request: HttpRequest, finding_id: Id) -> Document:
    """With its evidence, and its levers: those that are offered, and what became of the others."""
    return tagged(request, standing.with_levers(standing.get(finding_id)))


@router.get("/diagnosis/levers", auth=viewer, response=Page, summary="List levers of all findings")
def list_levers(
    request: HttpRequest,
    state: Annotated[ProposalState | None, Query()] = None,
    limit: Limit = PAGE_ROWS,
    after: Before = None,
) -> Page:
    """Newest first: what was offered, applied, held, offered back."""
    found, following = standing.page_proposals(state=state or "", limit=limit, after=after)
    return Page(items=[standing.describe_lever(row) for row in found], next=following)


@router.get(_LEVER, auth=viewer, response=dict[str, Any], summary="Read lever")
def read_lever(request: HttpRequest, finding_id: Id, key: str) -> Document:
    """`changed_since`: what somebody changed since of what it wrote, so that it cannot be taken back."""
    row = proposals.find(finding_id, key)
    return tagged(request, standing.describe_lever(row), standing.with_changes(row))


def _current(finding_id: int, key: str) -> Current:
    return lambda: standing.describe_lever(proposals.find(finding_id, key))


@router.post(f"{_LEVER}/apply", auth=operator, response=WriteAnswer, summary="Apply lever", openapi_extra=IF_MATCH)
def apply_lever(request: HttpRequest, finding_id: Id, key: str, options: Options) -> WriteAnswer:
    """All its edits and commands in one change; then it is verified: the finding must clear, or it is offered back.

    Its numbers follow what is measured: send the ETag that you read as If-Match, and you apply what you saw. Some
    levers change what needs the role admin.
    """
    return perform(
        request,
        options,
        lambda unit: standing.describe_lever(proposals.apply(unit, finding_id, key)),
        current=_current(finding_id, key),
    )


@router.post(f"{_LEVER}/revert", auth=operator, response=WriteAnswer, summary="Take lever back", openapi_extra=IF_MATCH)
def revert_lever(request: HttpRequest, finding_id: Id, key: str, options: Options) -> WriteAnswer:
    """Exactly what it wrote becomes as it was before; 409 `changed_since` where somebody changed any of that since."""
    return perform(
        request,
        options,
        lambda unit: standing.describe_lever(proposals.revert(unit, finding_id, key)),
        current=_current(finding_id, key),
    )


@router.post(f"{_LEVER}/dismiss", auth=operator, response=WriteAnswer, summary="Dismiss lever", openapi_extra=IF_MATCH)
def dismiss_lever(request: HttpRequest, finding_id: Id, key: str, options: Options) -> WriteAnswer:
    """It is not offered again while the finding stands. One that is offered back stays applied."""
    return perform(
        request,
        options,
        lambda unit: standing.describe_lever(proposals.dismiss(unit, finding_id, key)),
        current=_current(finding_id, key),
    )


add_noun(router, "/lever-policies", LEVER_POLICIES, write=admin)
