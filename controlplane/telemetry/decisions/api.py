"""REST of decisions and sketches: gateways post them, viewers read them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from msgspec import Meta, Struct
from ninja import Body, Query, Router
from pydantic import AwareDatetime

from controlplane.core.bodies import described, read_body
from controlplane.core.errors import Forbidden, Refused
from controlplane.core.fields import ShownAs, epoch_ms, from_epoch_ms, iso
from controlplane.core.models import TargetKind
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Filter, Limit, Page, json_answer
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import TargetAuth, caller_in, calling_target, viewer
from controlplane.telemetry.decisions import log, shadow, size_classes, sketches
from wire.canonical import Document
from wire.messages import Decision
from wire.problems import Problem
from wire.sketches import Sketch

router = Router(tags=["decisions"])
own = viewer.within(any_of_theirs)

DECISIONS_MAX, SKETCHES_MAX = 2000, 1000
DecisionList = Annotated[list[Decision], Meta(max_length=DECISIONS_MAX)]
SketchList = Annotated[list[Sketch], Meta(max_length=SKETCHES_MAX)]
_DAY_MS = 86_400_000
_SPAN_MAX_DAYS = 31
Moment = Annotated[AwareDatetime | None, Query(description="ISO 8601 with a zone, such as 2030-01-31T12:00:00Z.")]
# As every name in a filter; `class` is a word of Python.
ClassFilter = Annotated[str, Query(alias="class", max_length=200, pattern=r"^[^\x00-\x1f]*$")]
ModelFilter = Annotated[str, Query(max_length=200, pattern=r"^[^\x00-\x1f]+$")]
PoolsFilter = Annotated[
    list[Filter], Query(max_length=size_classes.CLASSES_MAX, description="One for each class, the shortest first.")
]
ShadowBody = Annotated[dict[str, Any], ShownAs(shadow.ShadowFields), Body()]
By = Annotated[list[sketches.By], Query(min_length=1, max_length=3, description="What tells entries apart.")]


class TakenAnswer(Struct):
    taken: int


@router.post(
    "/decisions", auth=TargetAuth(), tags=["targets"], summary="Post a gateway's decisions",
    **described("decisions", TakenAnswer),
)  # fmt: skip
def post_decisions(request: HttpRequest) -> HttpResponse:
    """At most 2000. `taken` counts all: one of the same request and time that is known already counts once."""
    gateway, body = _gateway(request), read_body(request, DecisionList)
    log.take(gateway, body, _now_ms())
    return json_answer(TakenAnswer(len(body)))


@router.get("/decisions", auth=own, response=Page, summary="List decisions, the last received first")
def list_decisions(
    request: HttpRequest,
    tenant: Filter = "",
    pool: Filter = "",
    reason: Filter = "",
    gateway: Filter = "",
    refused: bool = False,
    since: Moment = None,
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    """All refusals and samples of admitted requests (reason `admitted`), received at `since` or later.

    With `refused` refusals alone.
    """
    found, following = log.page(
        tenant=tenant,
        pool=pool,
        reason=reason,
        gateway=gateway,
        refused=refused,
        since_ms=None if since is None else epoch_ms(since),
        tenants=caller_in(request).tenants,
        limit=limit,
        after=after,
    )
    return Page(items=[log.describe(row) for row in found], next=following)


@router.get("/decisions/{path:request_id}", auth=own, response=dict[str, Any], summary="Why a request was refused")
def read_decisions(request: HttpRequest, request_id: str) -> Document:
    """What was decided of the request with this `x-request-id`, in words and numbers, newest first."""
    found = log.of_request(request_id, caller_in(request).tenants)
    return {"request_id": request_id, "decisions": [{**log.describe(row), "words": log.in_words(row)} for row in found]}


@router.post(
    "/sketches", auth=TargetAuth(), tags=["targets"], summary="Post a gateway's per-minute sketches",
    **described("sketches", TakenAnswer),
)  # fmt: skip
def post_sketches(request: HttpRequest) -> HttpResponse:
    """At most 1000, of minutes that ended. One that is known already counts once, however often it comes."""
    gateway, body = _gateway(request), read_body(request, SketchList)
    sketches.take(gateway, body, _now_ms())
    return json_answer(TakenAnswer(len(body)))


@router.get("/sketches", auth=own, response=dict[str, Any], summary="Sum up lengths and arrivals over a span")
def read_sketches(
    request: HttpRequest,
    tenant: Filter = "",
    priority_class: ClassFilter = "",
    pool: Filter = "",
    since: Moment = None,
    until: Moment = None,
    by: By = ["tenant", "class", "pool"],  # noqa: B006 - read only
) -> Document:
    """Whole minutes, of the last day unless said otherwise. Quantiles are within 3.2 % of the exact ones."""
    span = _span(since, until)
    labels = tuple(dict.fromkeys(by))
    only = {"tenant": tenant, "priority_class": priority_class, "pool": pool}
    items = sketches.summary(span, labels, caller_in(request).tenants, **only)
    return {"since": iso(from_epoch_ms(span.since_ms)), "until": iso(from_epoch_ms(span.until_ms)), "items": items}


@router.get(
    "/size-classes", auth=viewer, response=dict[str, Any], tags=["routes"], summary="Size classes that would fit"
)
def read_size_classes(
    request: HttpRequest,
    model: ModelFilter,
    pool: PoolsFilter = [],  # noqa: B006 - read only
    since: Moment = None,
) -> Document:
    """Offered from the lengths that gateways saw since then, the last day unless said otherwise; nothing is applied.

    `routes` are the rules that would do it, to be tried by `/routes/test`; null where a class has no pool.
    """
    span = _span(since, None)
    offered = size_classes.offer(model, span, pool)
    return {"since": iso(from_epoch_ms(span.since_ms)), "until": iso(from_epoch_ms(span.until_ms)), **offered}


@router.post("/shadow", auth=own, response=dict[str, Any], summary="Try limits on what came")
def try_limits(request: HttpRequest, body: ShadowBody) -> Document:
    """How many requests of the last minutes would have been refused under other limits, and whose. Changes nothing.

    `configured` replays them under the limits that hold, to be compared with `proposed` and with what was
    `refused_then`.
    """
    return shadow.try_limits(body, _now_ms(), caller_in(request).tenants)


def _gateway(request: HttpRequest) -> str:
    target = calling_target(request)
    if target.kind != TargetKind.GATEWAY:
        raise Forbidden("only a gateway decides on requests; a node's agent posts events", code="wrong_kind")
    return target.name


def _span(since: AwareDatetime | None, until: AwareDatetime | None) -> sketches.Span:
    until_ms = _now_ms() if until is None else epoch_ms(until)
    since_ms = until_ms - _DAY_MS if since is None else epoch_ms(since)
    if not 0 <= since_ms < until_ms <= since_ms + _SPAN_MAX_DAYS * _DAY_MS:
        says = f"give a `since` before `until`, at most {_SPAN_MAX_DAYS} days apart"
        raise Refused(says, [Problem("/since", "span", says)])
    return sketches.whole_minutes(sketches.Span(since_ms, until_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
