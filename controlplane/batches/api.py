"""REST of batches for people: which there are, how far they are, and an end to one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Path, Query, Router

from controlplane.batches import batches
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Filter, Limit, Page
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import caller_in, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router(tags=["batches"])
BatchId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
State = Annotated[
    Literal["", "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"],
    Query(description="Only batches of this status."),
]


@router.get("/batches", auth=viewer.within(any_of_theirs), response=Page, summary="List batches, newest first")
def list_batches(
    request: HttpRequest, tenant: Filter = "", status: State = "", limit: Limit = PAGE_ROWS, after: Filter = ""
) -> Page:
    """Tenants make them at a gateway (`POST /v1/batches`)."""
    tenants = caller_in(request).tenants
    found, more = batches.page(tenants, limit=limit, after=after, status=status, tenant=tenant)
    return Page(items=[batches.summary(batch) for batch in found], next=found[-1].pk if more else None)


@router.get("/batches/{batch_id}", auth=viewer.within(any_of_theirs), response=dict[str, Any], summary="Read a batch")
def read_batch(request: HttpRequest, batch_id: BatchId) -> Document:
    """`said`: what keeps a worker from going on with it."""
    return tagged(request, batches.summary(batches.get(batch_id, caller_in(request).tenants)))


@router.post(
    "/batches/{batch_id}/cancel", auth=operator.within(any_of_theirs), response=WriteAnswer, summary="Cancel a batch"
)
def cancel_batch(request: HttpRequest, batch_id: BatchId, options: Options) -> WriteAnswer:
    """No further line of it starts; those that run have ten minutes. What is done stands in its output file."""
    tenants = caller_in(request).tenants
    return perform(request, options, lambda unit: batches.summary(batches.cancel_by_person(unit, batch_id, tenants)))
