"""REST of events and the cordon policy."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from msgspec import UNSET, Meta, Struct
from ninja import Body, Router

from controlplane.alerts.services import events, policy
from controlplane.core.bodies import described, read_body
from controlplane.core.errors import Forbidden
from controlplane.core.fields import ShownAs
from controlplane.core.models import Target, TargetKind
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import After, Filter, Limit, Page, changes_of, json_answer
from controlplane.core.security import TargetAuth, admin, calling_target, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document
from wire.messages import Event
from wire.problems import MAX_PROBLEMS, Problem, pointer

router = Router()

EVENTS_MAX = 1000
EventList = Annotated[list[Event], Meta(max_length=EVENTS_MAX)]
PolicyBody = Annotated[dict[str, Any], ShownAs(changes_of(policy.PolicyFields)), Body()]


class EventsAnswer(Struct):
    taken: list[str]


@router.post(
    "/events", auth=TargetAuth(), tags=["targets"], summary="Post a node's or a gateway's events",
    **described("events", EventsAnswer),
)  # fmt: skip
def post_events(request: HttpRequest) -> HttpResponse:
    """At most 1000, all or nothing. `taken` names every one: one that was known already counts once, however often
    it comes. A critical fault of the hardware cordons its node here, where the policy is on, and the answer comes once
    that is committed. Events of a gateway, which have no `node`, are kept and do nothing else."""
    target = calling_target(request)
    body = read_body(request, EventList)
    if target.kind == TargetKind.NODE:
        _refuse_foreign(target, body)
        events.take_events(target.name, body, timezone.now())
    else:
        _refuse_nodes(body)
        events.take_gateway_events(target.name, body, timezone.now())
    return json_answer(EventsAnswer([event.id for event in body]))


def _refuse_foreign(target: Target, body: list[Event]) -> None:
    says = f"this token is of the node {target.name!r}; post its events alone"
    _refuse_at([index for index, event in enumerate(body) if event.node != target.name], says)


def _refuse_nodes(body: list[Event]) -> None:
    says = "a gateway cannot post events of a node; only the node's own agent can. Leave `node` out"
    _refuse_at([index for index, event in enumerate(body) if event.node is not UNSET], says)


def _refuse_at(indexes: list[int], says: str) -> None:
    if indexes:
        problems = [Problem(pointer(f"/{index}", "node"), "foreign_node", says) for index in indexes[:MAX_PROBLEMS]]
        raise Forbidden(says, problems, code="foreign_node")


@router.get("/events", auth=viewer, response=Page, tags=["incidents"], summary="List events, the last received first")
def list_events(
    request: HttpRequest,
    node: Filter = "",
    gateway: Filter = "",
    kind: Filter = "",
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    """`at` is what the clock of its node or gateway said; `next` is the `after` of the next page."""
    found, following = events.page(node=node, gateway=gateway, kind=kind, limit=limit, after=after)
    return Page(items=[events.describe(row) for row in found], next=following)


@router.get("/cordon-policy", auth=viewer, response=dict[str, Any], tags=["cordon policy"], summary="Read the policy")
def read_policy(request: HttpRequest) -> Document:
    return tagged(request, policy.describe(policy.get()))


@router.patch("/cordon-policy", auth=admin, response=WriteAnswer, tags=["cordon policy"], summary="Change the policy")
def change_policy(request: HttpRequest, options: Options, body: PolicyBody) -> WriteAnswer:
    """Whether a critical fault of the hardware cordons its node, and of how many nodes at most within a window."""
    return perform(
        request,
        options,
        lambda unit: policy.describe(policy.update(unit, body)),
        current=lambda: policy.describe(policy.get()),
    )
