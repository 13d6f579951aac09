"""REST of models' files on nodes: what is there, and asking for more."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Filter, Limit, Page
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.fleet import model_files
from controlplane.fleet.services import MODELS, NODES, acts
from controlplane.fleet.services import model_files as service
from wire.canonical import Document

router = Router(tags=["model-files"])
AskBody = Annotated[dict[str, Any], ShownAs(service.AskFields), Body()]


@router.get("/model-files", auth=viewer, response=Page, summary="List models' files on nodes, as reported")
def list_model_files(
    request: HttpRequest, node: Filter = "", model: Filter = "", limit: Limit = PAGE_ROWS, after: After = 0
) -> Page:
    """Of one node, of one model, or all. `act`: what fetches or checks them now."""
    wanted = MODELS.get(model) if model else None
    if node:
        NODES.get(node)
    found, following = model_files.page(node=node, model=wanted, limit=limit, after=after)
    return Page(items=model_files.described(found), next=following)


@router.post("/model-files/fetch", auth=operator, response={201: WriteAnswer}, summary="Fetch a model's files on nodes")
def fetch(request: HttpRequest, options: Options, body: AskBody) -> Status[WriteAnswer]:
    """One act `fetch_model` a node: the site's own command runs there, and all files are read afterwards."""

    def act(unit: UnitOfWork) -> Document:
        return {"acts": [acts.describe(row) for row in service.ask(unit, "fetch_model", body)]}

    return Status(HTTPStatus.CREATED, perform(request, options, act))


@router.post("/model-files/check", auth=operator, response={201: WriteAnswer}, summary="Check a model's files on nodes")
def check(request: HttpRequest, options: Options, body: AskBody) -> Status[WriteAnswer]:
    """One act `check_model` a node: all files are read that changed since they were."""

    def act(unit: UnitOfWork) -> Document:
        return {"acts": [acts.describe(row) for row in service.ask(unit, "check_model", body)]}

    return Status(HTTPStatus.CREATED, perform(request, options, act))
