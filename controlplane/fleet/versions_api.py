"""REST of model versions: published, listed, retired, brought back, taken back."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.params.functions import Body as body_parameter

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs, read
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import tagged
from controlplane.core.rest import After, Filter, Id, Limit, Page
from controlplane.core.security import admin, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.fleet.services import versions
from controlplane.fleet.services.versions import NewVersionFields
from wire.canonical import Document

router = Router()
_TAGS = ["model-versions"]
Body = Annotated[dict[str, Any], ShownAs(NewVersionFields), body_parameter()]


@router.get("/model-versions", auth=viewer, response=Page, tags=_TAGS, summary="List model versions")
def list_versions(request: HttpRequest, family: Filter = "", limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    """Of one family where it is given; the one that was published last first."""
    found, following = versions.page(family=family, limit=limit, after=after)
    return Page(items=versions.described(found), next=following)


@router.post(
    "/model-versions", auth=admin, response={201: WriteAnswer}, tags=_TAGS, summary="Publish a version of a model"
)
def publish_version(request: HttpRequest, options: Options, body: Body) -> Status[WriteAnswer]:
    """It is the newest of its family from then on: the alias of that name is moved to its model."""

    def act(unit: UnitOfWork) -> Document:
        asked = read(NewVersionFields, body)
        return versions.describe(versions.publish(unit, asked.family, asked.version, asked.model))

    return Status(HTTPStatus.CREATED, perform(request, options, act))


@router.get("/model-versions/{version_id}", auth=viewer, response=Document, tags=_TAGS, summary="Read a model version")
def read_version(request: HttpRequest, version_id: Id) -> Document:
    return tagged(request, versions.describe(versions.get(version_id)))


@router.delete(
    "/model-versions/{version_id}", auth=admin, response=WriteAnswer, tags=_TAGS, summary="Take a version back"
)
def delete_version(request: HttpRequest, version_id: Id, options: Options) -> WriteAnswer:
    """Its model stays. Where it was the newest, the family follows the one before it."""
    return perform(
        request,
        options,
        lambda unit: versions.delete(unit, version_id),
        current=lambda: versions.describe(versions.get(version_id)),
    )


@router.post(
    "/model-versions/{version_id}/retire", auth=admin, response=WriteAnswer, tags=_TAGS, summary="Retire a version"
)
def retire_version(request: HttpRequest, version_id: Id, options: Options) -> WriteAnswer:
    """Its engines are drained, and stopped or put to sleep where their nodes allow. The newest is never retired."""
    return perform(request, options, lambda unit: versions.describe(versions.retire(unit, version_id)))


@router.post(
    "/model-versions/{version_id}/bring-back", auth=admin, response=WriteAnswer, tags=_TAGS,
    summary="Let a retired version serve again",
)  # fmt: skip
def bring_version_back(request: HttpRequest, version_id: Id, options: Options) -> WriteAnswer:
    """Its engines are woken or started where their nodes allow, and take work again."""
    return perform(request, options, lambda unit: versions.describe(versions.bring_back(unit, version_id)))
