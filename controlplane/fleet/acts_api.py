"""REST of acts: what agents are asked to do once."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Body, Query, Router, Status

from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import After, Filter, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.fleet.services import acts
from wire.canonical import Document

router = Router(tags=["acts"])
ActBody = Annotated[dict[str, Any], ShownAs(acts.NewActFields), Body()]
State = Annotated[
    Literal["", "waiting", "running", "done", "refused", "failed", "expired", "cancelled"],
    Query(description="Only acts of this state."),
]


@router.get("/acts", auth=viewer, response=Page, summary="List acts, newest first")
def list_acts(
    request: HttpRequest,
    node: Filter = "",
    engine: Filter = "",
    state: State = "",
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    found, following = acts.page(node=node, engine=engine, state=state, limit=limit, after=after)
    return Page(items=[acts.describe(row) for row in found], next=following)


@router.post("/acts", auth=operator, response={201: WriteAnswer}, summary="Ask a node's agent for an act")
def ask_for_act(request: HttpRequest, options: Options, body: ActBody) -> Status[WriteAnswer]:
    """On a node or one engine of it, begun before it expires: within a week. The node's own policy has the last word.

    `drain` cordons its engine at once, and leaves it cordoned.
    """
    answer = perform(request, options, lambda unit: acts.describe(acts.create(unit, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/acts/{act_id}", auth=viewer, response=dict[str, Any], summary="Read an act")
def read_act(request: HttpRequest, act_id: str) -> Document:
    return tagged(request, acts.describe(acts.get(act_id)))


@router.post("/acts/{act_id}/cancel", auth=operator, response=WriteAnswer, summary="Cancel an act that waits")
def cancel_act(request: HttpRequest, act_id: str, options: Options) -> WriteAnswer:
    """An agent that has begun it and not yet told so does it all the same."""
    return perform(request, options, lambda unit: acts.describe(acts.cancel(unit, act_id)))
