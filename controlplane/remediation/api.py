"""REST of repairs and of the policy that begins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Body, Query, Router

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import After, Filter, Id, Limit, Page, changes_of
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.remediation import causes, services
from controlplane.remediation.models import Remediation
from wire.canonical import Document

router = Router(tags=["remediation"])
PolicyBody = Annotated[dict[str, Any], ShownAs(changes_of(services.PolicyFields)), Body()]
State = Annotated[
    Literal["", "held", "quarantined", "draining", "drained", "remediating", "verifying", "remediated", "observed",
            "failed", "escalated", "cancelled"],
    Query(description="Empty: all."),
]  # fmt: skip


@router.get("/remediations", auth=viewer, response=Page, summary="List repairs of nodes, newest first")
def list_remediations(
    request: HttpRequest, node: Filter = "", state: State = "", limit: Limit = PAGE_ROWS, after: After = 0
) -> Page:
    found, following = services.page(node=node, state=state, limit=limit, after=after)
    return Page(items=[services.describe(row) for row in found], next=following)


@router.get("/remediations/{remediation_id}", auth=viewer, response=dict[str, Any], summary="Read repair")
def read_remediation(request: HttpRequest, remediation_id: Id) -> Document:
    """`said`: what the last look saw, or why it ended. `acts`: the ids of its acts (GET /acts/…), by their purpose."""
    return tagged(request, services.describe(services.get(remediation_id)))


@router.post("/remediations/{remediation_id}/cancel", auth=operator, response=WriteAnswer, summary="Cancel repair")
def cancel_remediation(request: HttpRequest, remediation_id: Id, options: Options) -> WriteAnswer:
    """Nothing more is done, also of one that failed. Its engines are put back; a cordon of the node stays. A second
    time changes nothing."""
    return _written(request, options, lambda unit: services.cancel(unit, remediation_id))


@router.post("/remediations/{remediation_id}/act", auth=operator, response=WriteAnswer, summary="Begin repair")
def act_on_remediation(request: HttpRequest, remediation_id: Id, options: Options) -> WriteAnswer:
    """What was only observed is begun, and what failed tried again, whatever the policy's mode. The node must be
    cordoned, or becomes so, before anything is done."""
    return _written(request, options, lambda unit: services.act_on(unit, remediation_id))


@router.get("/remediation-policy", auth=viewer, response=dict[str, Any], summary="Read the policy")
def read_policy(request: HttpRequest) -> Document:
    return tagged(request, services.describe_policy(services.policy()))


@router.get("/remediation-policy/actions", auth=viewer, response=dict[str, Any], summary="What each fault asks for")
def read_actions(request: HttpRequest) -> Document:
    """By cause, the policy's own among them. What is not listed asks for nothing."""
    return {"actions": {**causes.ACTIONS, **services.policy().actions}}


@router.patch("/remediation-policy", auth=admin, response=WriteAnswer, summary="Change the policy")
def change_policy(request: HttpRequest, options: Options, body: PolicyBody) -> WriteAnswer:
    """`mode` `act` lets the program repair nodes that are cordoned for a fault of the hardware; `observe` says what it
    would do."""
    return perform(
        request, options, lambda unit: services.describe_policy(services.change_policy(unit, body)),
        current=lambda: services.describe_policy(services.policy()),
    )  # fmt: skip


@router.post(
    "/remediation-policy/reset-breaker", auth=operator, response=WriteAnswer, summary="Let repairs begin again"
)
def reset_breaker(request: HttpRequest, options: Options) -> WriteAnswer:
    """After too many nodes were taken in hand at once. Nothing else resets it."""
    return perform(request, options, lambda unit: services.describe_policy(services.reset_breaker(unit)))


def _written(request: HttpRequest, options: Options, act: Callable[[UnitOfWork], Remediation]) -> WriteAnswer:
    return perform(request, options, lambda unit: services.describe(act(unit)))
