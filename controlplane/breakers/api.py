"""REST of breaker overrides."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from controlplane.breakers import services
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import Filter, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router(tags=["overrides"])

OverrideBody = Annotated[dict[str, Any], ShownAs(services.NewOverrideFields), Body()]


@router.get("/overrides", auth=viewer, response=Page, summary="List overrides")
def list_overrides(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    found, following = services.page(limit, after)
    return Page(items=[services.describe(row) for row in found], next=following)


@router.post("/overrides", auth=operator, response={201: WriteAnswer}, summary="Force a breaker open or closed")
def force_breaker(request: HttpRequest, options: Options, body: OverrideBody) -> Status[WriteAnswer]:
    """Until it expires, a day at most, or is lifted. The strictest unexpired override of a subject holds."""
    answer = perform(request, options, lambda unit: services.describe(services.force(unit, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/overrides/{name}", auth=viewer, response=dict[str, Any], summary="Read an override")
def read_override(request: HttpRequest, name: str) -> Document:
    return services.describe(services.get(name))


@router.delete("/overrides/{name}", auth=operator, response=WriteAnswer, summary="Lift an override")
def lift_override(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: services.lift(unit, name))
