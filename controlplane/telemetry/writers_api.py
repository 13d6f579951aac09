"""REST of metric writers."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import IF_MATCH, IF_NONE_MATCH, Current, tagged
from controlplane.core.rest import Filter, Limit, Page, changes_of
from controlplane.core.security import admin, viewer
from controlplane.core.writes import Options, WriteAnswer, WriteOptions, perform
from controlplane.telemetry.models import MetricWriter
from controlplane.telemetry.writers import METRIC_WRITERS, MetricWriterFields, RotateWriterFields
from wire.canonical import Document

router = Router(tags=["metric-writers"])

NewWriter = Annotated[dict[str, Any], ShownAs(METRIC_WRITERS.new_fields), Body()]
WriterChanges = Annotated[dict[str, Any], ShownAs(changes_of(MetricWriterFields)), Body()]
RotateBody = Annotated[dict[str, Any], ShownAs(RotateWriterFields), Body()]


@router.get("/metric-writers", auth=viewer, response=Page, summary="List metric writers")
def list_metric_writers(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    """`last_pushed_at`: when a body last came, to some seconds."""
    found, following = METRIC_WRITERS.page(limit, after)
    return Page(items=[METRIC_WRITERS.show(row) for row in found], next=following)


@router.post(
    "/metric-writers", auth=admin, response={201: WriteAnswer}, summary="Create metric writer; its token is shown once",
    openapi_extra=IF_NONE_MATCH,
)  # fmt: skip
def create_metric_writer(request: HttpRequest, options: Options, body: NewWriter) -> Status[WriteAnswer]:
    """A Prometheus, Alloy or vmagent, which writes with `secret` as bearer token."""
    name = body.pop("name", "")
    return _with_token(
        request,
        options,
        lambda unit: METRIC_WRITERS.create(unit, name, body),
        lambda: METRIC_WRITERS.known(name),
    )


@router.get("/metric-writers/{name}", auth=viewer, response=dict[str, Any], summary="Read metric writer")
def read_metric_writer(request: HttpRequest, name: str) -> Document:
    row = METRIC_WRITERS.get(name)
    return tagged(request, METRIC_WRITERS.describe(row), METRIC_WRITERS.show(row))


@router.patch("/metric-writers/{name}", auth=admin, response=WriteAnswer, summary="Change metric writer")
def change_metric_writer(request: HttpRequest, name: str, options: Options, body: WriterChanges) -> WriteAnswer:
    """Other matchers count from its next body on; what is stored stays."""
    return perform(
        request,
        options,
        lambda unit: METRIC_WRITERS.describe(METRIC_WRITERS.update(unit, name, body)),
        current=_current(name),
    )


@router.delete("/metric-writers/{name}", auth=admin, response=WriteAnswer, summary="Delete metric writer")
def delete_metric_writer(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """Its tokens are of no more use from its next body on; what is stored stays."""
    return perform(request, options, lambda unit: METRIC_WRITERS.delete(unit, name), current=_current(name))


@router.post(
    "/metric-writers/{name}/rotate", auth=admin, response={201: WriteAnswer},
    summary="Rotate a metric writer's token; the new one is shown once", openapi_extra=IF_MATCH,
)  # fmt: skip
def rotate_metric_writer(request: HttpRequest, name: str, options: Options, body: RotateBody) -> Status[WriteAnswer]:
    """The old token goes on working for `overlap_seconds`, 30 days at most."""
    return _with_token(request, options, lambda unit: METRIC_WRITERS.rotate(unit, name, body), _current(name))


def _current(name: str) -> Current:
    return lambda: METRIC_WRITERS.describe(METRIC_WRITERS.lock(name))


def _with_token(
    request: HttpRequest,
    options: WriteOptions,
    act: Callable[[UnitOfWork], MetricWriter],
    current: Current,
) -> Status[WriteAnswer]:
    made: list[MetricWriter] = []

    def noted(unit: UnitOfWork) -> Document:
        made.append(act(unit))
        return METRIC_WRITERS.describe(made[0])

    answer = perform(request, options, noted, current=current, secret=lambda: made[0].secret)
    return Status(HTTPStatus.CREATED, answer)
