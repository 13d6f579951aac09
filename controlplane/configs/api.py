"""REST of the configuration as people see it: where it stands, its revisions, going back; and its schema."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from controlplane.configs import history, oversubscription, revisions
from controlplane.configs.convergence import convergence
from controlplane.configs.public import public_form
from controlplane.configs.rollback import roll_back
from controlplane.core.errors import NotFound
from controlplane.core.nouns import PAGE_ROWS, PAGE_ROWS_MAX
from controlplane.core.preconditions import tagged
from controlplane.core.rest import Limit, Page, json_answer
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import MAX_INTEGER, Document
from wire.schema import schemas

router = Router(tags=["configuration"])
Number = Annotated[int, Path(ge=1, le=MAX_INTEGER)]
NumberAsked = Annotated[int, Query(ge=1, le=MAX_INTEGER)]
Largest = Annotated[int, Query(ge=0, le=PAGE_ROWS_MAX, description="Tenants a pool at most.")]
Before = Annotated[int | None, Query(ge=1, le=MAX_INTEGER, description="`next` of the page before.")]


@router.get("/config/convergence", auth=viewer, response=dict[str, Any], summary="Where each target stands")
def read_convergence(request: HttpRequest) -> Document:
    """`state`: applied, pending, refused, never or lost. Judged by the hash of what the target says it runs.

    `stage`: the one that runs; `staged`: the target gets its change, and is judged by that. `turns_10m`: how often,
    in ten minutes, a stream of it opened or it went between applying and refusing (at most 20 are counted);
    `flapping`: at least five times.
    """
    return convergence()


@router.get("/capacity", auth=viewer, response=dict[str, Any], summary="What pools can hold, and what limits promise")
def read_capacity(request: HttpRequest, tenants: Largest = PAGE_ROWS) -> Document:
    """Of every pool: the context that its engines can hold, and what its tenants' limits promise of it, in tokens.

    `basis` of a share: `residence` (a limit per minute × the mean residence that was measured), `mean_context` or
    `longest_context` (parallel requests × context), or, without a bound, `no_residence` and `no_limit`. What is
    not known is null. `tenants` are those with the largest shares.
    """
    return {"items": oversubscription.describe(tenants)}


@router.get("/revisions", auth=viewer, response=Page, summary="List revisions")
def list_revisions(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Before = None) -> Page:
    """Newest first."""
    items, following = revisions.page(limit, after)
    return Page(items=items, next=following)


@router.get("/revisions/{number}", auth=viewer, response=dict[str, Any], summary="Read revision")
def read_revision(request: HttpRequest, number: Number) -> Document:
    """Its patch from the revision before, and its audit entries: who changed what, why."""
    return tagged(request, revisions.describe(number))


@router.get("/revisions/{number}/content", auth=admin, summary="The whole configuration as compiled in a revision")
def read_content(request: HttpRequest, number: Number) -> HttpResponse:
    """What slices are cut from. Without the engines' API keys; tenant keys are hashes."""
    return json_answer({"revision": number, "content": public_form(history.content_at(number).content)})


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
