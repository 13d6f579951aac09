"""REST of staged publish: begin a stage, see how it goes, end it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status

from controlplane.configs import staged, stages
from controlplane.configs.document_api import Allowed
from controlplane.configs.stage_asked import StageFields, begin
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Id, Limit, Page
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import MAX_INTEGER, Document

router = Router(tags=["configuration"])
StageBody = Annotated[dict[str, Any], ShownAs(StageFields), Body()]
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]


@router.post("/config/stages", auth=admin, response={201: WriteAnswer}, summary="Give a change to some targets first")
def begin_stage(
    request: HttpRequest, options: Options, body: StageBody, allow_removals: Allowed = False
) -> Status[WriteAnswer]:
    """They get it on top of what all get, until it is promoted or taken back. One stage at a time (409 `staged`).

    While it runs, other writes go on; those that change the same, or would keep it from being promoted, are refused
    (409 `staged`).
    """
    answer = perform(request, options, lambda unit: stages.describe(begin(unit, body, allow_removals=allow_removals)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/config/stages", auth=viewer, response=Page, summary="List stages")
def list_stages(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Before = None) -> Page:
    """Newest first."""
    found, following = stages.page(limit, after)
    return Page(items=[stages.describe(stage) for stage in found], next=following)


@router.get("/config/stages/{stage_id}", auth=viewer, response=dict[str, Any], summary="Read stage")
def read_stage(request: HttpRequest, stage_id: Id) -> Document:
    """`said`: what the last look saw or, once it has ended, why."""
    return tagged(request, stages.describe(stages.get(stage_id)))


@router.post("/config/stages/{stage_id}/promote", auth=admin, response=WriteAnswer, summary="Give the change to all")
def promote_stage(request: HttpRequest, stage_id: Id, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: stages.describe(staged.promote(unit, stage_id)))


@router.post("/config/stages/{stage_id}/take-back", auth=operator, response=WriteAnswer, summary="Take the change back")
def take_back_stage(request: HttpRequest, stage_id: Id, options: Options) -> WriteAnswer:
    """Its targets get what all others have."""
    return perform(request, options, lambda unit: stages.describe(staged.take_back(unit, stage_id)))
