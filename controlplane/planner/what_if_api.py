"""REST of what-if runs: ask for one, see how it goes, cancel it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status

from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Filter, Id, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.planner import what_if
from controlplane.planner.what_if_asked import WhatIfFields
from wire.canonical import MAX_INTEGER, Document

router = Router(tags=["planner"])
WhatIfBody = Annotated[dict[str, Any], ShownAs(WhatIfFields), Body()]
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]


@router.post("/what-if", auth=operator, response={201: WriteAnswer}, summary="Try engine settings in virtual time")
def begin_what_if(request: HttpRequest, options: Options, body: WhatIfBody) -> Status[WriteAnswer]:
    """A worker carries it out, one after another. `assumed` says what nothing was measured of."""
    answer = perform(request, options, lambda unit: what_if.describe(what_if.begin(unit, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/what-if", auth=viewer, response=Page, summary="List what-if runs")
def list_what_ifs(request: HttpRequest, pool: Filter = "", limit: Limit = PAGE_ROWS, after: Before = None) -> Page:
    """Newest first."""
    found, following = what_if.page(limit, after, pool=pool)
    return Page(items=[what_if.describe(run) for run in found], next=following)


@router.get("/what-if/{run_id}", auth=viewer, response=dict[str, Any], summary="Read what-if run")
def read_what_if(request: HttpRequest, run_id: Id) -> Document:
    """With what was asked and, once it is done, the report: each point, the peak and why."""
    run = what_if.get(run_id)
    return tagged(request, what_if.describe(run), what_if.describe_whole(run))


@router.post("/what-if/{run_id}/cancel", auth=operator, response=WriteAnswer, summary="Cancel what-if run")
def cancel_what_if(request: HttpRequest, run_id: Id, options: Options) -> WriteAnswer:
    """Its worker stops within seconds. 409 `ended` where it has ended."""
    return perform(request, options, lambda unit: what_if.describe(what_if.cancel(unit, run_id)))
