"""REST of rollouts: begin one, see how it goes, pause, go on, end it, go back."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status

from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Id, Limit, Page
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.rollouts import services, standing
from controlplane.rollouts.asked import RolloutFields
from wire.canonical import MAX_INTEGER, Document

router = Router(tags=["rollouts"])
RolloutBody = Annotated[dict[str, Any], ShownAs(RolloutFields), Body()]
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]


@router.post("/rollouts", auth=admin, response={201: WriteAnswer}, summary="Begin a rollout")
def begin_rollout(request: HttpRequest, options: Options, body: RolloutBody) -> Status[WriteAnswer]:
    """By `kind`: `red_black`, `versioned`, `rolling_restart`, `to_spare`, `from_spare`. One rollout a pool at a time.

    With `dry_run` the answer's item is the plan: every step, and what it costs in GPUs.
    """
    answer = perform(request, options, lambda unit: standing.with_steps(services.begin(unit, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/rollouts", auth=viewer, response=Page, summary="List rollouts")
def list_rollouts(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Before = None) -> Page:
    """Newest first, without their steps."""
    found, following = standing.page(limit, after)
    return Page(items=[standing.describe(row) for row in found], next=following)


@router.get("/rollouts/{rollout_id}", auth=viewer, response=dict[str, Any], summary="Read rollout")
def read_rollout(request: HttpRequest, rollout_id: Id) -> Document:
    """`said`: what the last look saw or, once it has ended, why. Its steps say the same each of itself."""
    return tagged(request, standing.with_steps(standing.get(rollout_id)))


@router.post("/rollouts/{rollout_id}/pause", auth=operator, response=WriteAnswer, summary="Pause rollout")
def pause_rollout(request: HttpRequest, rollout_id: Id, options: Options) -> WriteAnswer:
    """It stays where it is, and is still taken back on a breach."""
    return perform(request, options, lambda unit: standing.with_steps(services.pause(unit, rollout_id)))


@router.post("/rollouts/{rollout_id}/resume", auth=operator, response=WriteAnswer, summary="Resume rollout")
def resume_rollout(request: HttpRequest, rollout_id: Id, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: standing.with_steps(services.resume(unit, rollout_id)))


@router.post("/rollouts/{rollout_id}/abort", auth=operator, response=WriteAnswer, summary="Abort rollout")
def abort_rollout(request: HttpRequest, rollout_id: Id, options: Options) -> WriteAnswer:
    """It ends, and leaves all as it stands."""
    return perform(request, options, lambda unit: standing.with_steps(services.abort(unit, rollout_id)))


@router.post("/rollouts/{rollout_id}/return", auth=operator, response=WriteAnswer, summary="Take a rollout back")
def return_rollout(request: HttpRequest, rollout_id: Id, options: Options) -> WriteAnswer:
    """All as it was before, in one revision; also of one that was aborted or has failed."""
    return perform(request, options, lambda unit: standing.with_steps(services.take_back(unit, rollout_id)))
