"""REST of breakers and their overrides."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Field, Router, Status

from controlplane.breakers import services, standing
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Filter, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.fleet.services import POOLS
from wire.canonical import Document

router = Router(tags=["overrides"])

OverrideBody = Annotated[dict[str, Any], ShownAs(services.NewOverrideFields), Body()]


class BreakerPage(Page):
    missing: str | None = Field(description="Why no gateway's state is known, where the metrics do not answer.")


@router.get("/breakers", auth=viewer, response=BreakerPage, tags=["breakers"], summary="Where every breaker stands")
def list_breakers(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> BreakerPage:
    """By pool: thresholds, the overrides that hold now and next, its own breaker, and the same of each engine.

    `gateways`: the state that holds at each, overrides included, as it told within the last minute; null: unknown.
    """
    pools, following = POOLS.page(limit, after)
    found, missing = standing.breakers(pools)
    return BreakerPage(items=found, next=following, missing=missing)


@router.get("/overrides", auth=viewer, response=Page, summary="List overrides")
def list_overrides(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    """`standing`: holds, shadowed (`shadowed_by` is stricter, on the subject or its pool) or expired."""
    found, following = services.page(limit, after)
    return Page(items=standing.shown(found), next=following)


@router.post("/overrides", auth=operator, response={201: WriteAnswer}, summary="Force a breaker open or closed")
def force_breaker(request: HttpRequest, options: Options, body: OverrideBody) -> Status[WriteAnswer]:
    """Until it expires, a day at most, or is lifted. The strictest unexpired override of a subject holds."""
    answer = perform(request, options, lambda unit: services.describe(services.force(unit, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/overrides/{name}", auth=viewer, response=dict[str, Any], summary="Read an override")
def read_override(request: HttpRequest, name: str) -> Document:
    row = services.get(name)
    return tagged(request, services.describe(row), standing.shown([row])[0])


@router.delete("/overrides/{name}", auth=operator, response=WriteAnswer, summary="Lift an override")
def lift_override(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    return perform(
        request,
        options,
        lambda unit: services.lift(unit, name),
        current=lambda: services.describe(services.get(name)),
    )
