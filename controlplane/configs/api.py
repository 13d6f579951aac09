"""REST of the configuration as people see it: where it stands, its revisions, going back; and its schema."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from controlplane.configs import revisions
from controlplane.configs.convergence import convergence
from controlplane.configs.hub import heads
from controlplane.configs.public import public_form
from controlplane.configs.rollback import roll_back
from controlplane.core.errors import NotFound
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import Limit, Page, json_answer
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import MAX_INTEGER, Document
from wire.schema import schemas

router = Router(tags=["configuration"])
Number = Annotated[int, Path(ge=1, le=MAX_INTEGER)]
NumberAsked = Annotated[int, Query(ge=1, le=MAX_INTEGER)]
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]


@router.get("/config/convergence", auth=viewer, response=dict[str, Any], summary="Where each target stands")
def read_convergence(request: HttpRequest) -> Document:
    """`state`: applied, pending, refused, never or lost. Judged by the hash of what the target says it runs."""
    return convergence()


@router.get("/config", auth=admin, summary="The whole configuration as published")
def read_config(request: HttpRequest) -> HttpResponse:
    """Without the engines' API keys; tenant keys are hashes."""
    head = heads.refresh()
    if head is None:
        raise NotFound("nothing has been published yet", code="unknown_revision")
    return json_answer({"revision": head.number, "content": public_form(head.content)})


@router.get("/revisions", auth=viewer, response=Page, summary="List revisions")
def list_revisions(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Before = None) -> Page:
    """Newest first."""
    items, following = revisions.page(limit, after)
    return Page(items=items, next=following)


@router.get("/revisions/{number}", auth=viewer, response=dict[str, Any], summary="Read revision")
def read_revision(request: HttpRequest, number: Number) -> Document:
    """Its patch from the revision before, and its audit entries: who changed what, why."""
    return revisions.describe(number)


@router.get("/revisions/{number}/diff", auth=viewer, response=dict[str, Any], summary="Compare two revisions")
def read_difference(request: HttpRequest, number: Number, to: NumberAsked) -> Document:
    """The RFC 7396 patch that leads from this revision to another, older or newer."""
    return revisions.difference(number, to)


@router.post("/revisions/{number}/rollback", auth=operator, response=WriteAnswer, summary="Go back to a revision")
def rollback(request: HttpRequest, number: Number, options: Options) -> WriteAnswer:
    """A new revision with the old content. Keys, engines, cordons and breaker overrides stay as they are."""
    return perform(request, options, lambda unit: roll_back(unit, number))


@router.get("/schema", auth=None, response=dict[str, Any], summary="List the schemas of what targets exchange")
def list_schemas(request: HttpRequest) -> Document:
    return {"items": sorted(schemas())}


@router.get("/schema/{name}", auth=None, response=dict[str, Any], summary="Read a JSON Schema")
def read_schema(request: HttpRequest, name: str) -> Document:
    known = schemas()
    if name not in known:
        raise NotFound(f"there is no schema {name!r}; there are {', '.join(sorted(known))}")
    return known[name]
