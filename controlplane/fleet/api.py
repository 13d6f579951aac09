"""REST of models, aliases, artifacts, pools, nodes, GPUs and engines."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status

from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Filter, Limit, Page, add_noun
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.fleet import services
from controlplane.fleet.models import Node
from controlplane.fleet.services import ALIASES, ENGINES, MODELS, NODES, POOLS, artifacts
from wire.canonical import Document

router = Router()


def _with_health(nodes: Sequence[Node]) -> list[Document]:
    return services.described_with_health(nodes, timezone.now())


add_noun(router, "/models", MODELS, write=admin, name_in_path="path:name")
add_noun(router, "/aliases", ALIASES, write=admin, name_in_path="path:name")
add_noun(router, "/pools", POOLS, write=operator)
add_noun(router, "/nodes", NODES, write=operator, editable=False, show=_with_health)
add_noun(router, "/engines", ENGINES, write=operator, show=services.described_with_facts)


@router.post("/nodes/{name}/cordon", auth=operator, response=WriteAnswer, tags=["nodes"], summary="Cordon node")
def cordon_node(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """Its engines take no new work; what runs ends by itself."""
    return perform(request, options, lambda unit: NODES.describe(NODES.cordon(unit, name)))


@router.post("/nodes/{name}/uncordon", auth=operator, response=WriteAnswer, tags=["nodes"], summary="Uncordon node")
def uncordon_node(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: NODES.describe(NODES.uncordon(unit, name)))


@router.post("/engines/{name}/cordon", auth=operator, response=WriteAnswer, tags=["engines"], summary="Cordon engine")
def cordon_engine(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """It takes no new work; what runs ends by itself."""
    return perform(request, options, lambda unit: ENGINES.describe(ENGINES.cordon(unit, name)))


@router.post(
    "/engines/{name}/uncordon", auth=operator, response=WriteAnswer, tags=["engines"], summary="Uncordon engine"
)
def uncordon_engine(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: ENGINES.describe(ENGINES.uncordon(unit, name)))


@router.get("/gpus", auth=viewer, response=Page, tags=["nodes"], summary="List GPUs as reported")
def list_gpus(request: HttpRequest, node: Filter = "", limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    found, following = services.page_gpus(node, limit, after)
    return Page(items=[services.describe_gpu(row) for row in found], next=following)


@router.get("/artifacts", auth=viewer, response=Page, tags=["artifacts"], summary="List uploaded files")
def list_artifacts(request: HttpRequest, limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    found, following = artifacts.page(limit, after)
    return Page(items=[artifacts.describe(row) for row in found], next=following)


_FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/artifacts", auth=admin, response={200: WriteAnswer, 201: WriteAnswer}, tags=["artifacts"],
    summary="Upload a tokenizer, a chat template or a manifest of model files", openapi_extra=_FILE_BODY,
)  # fmt: skip
def upload_artifact(request: HttpRequest, kind: Filter, name: Filter, options: Options) -> Status[WriteAnswer]:
    """The body is the file. The same bytes are stored once: a repeat answers 200 with the row that there is."""
    file = artifacts.check(kind, name, artifacts.read_bounded(request))

    def act(unit: UnitOfWork) -> Document:
        return artifacts.describe(artifacts.create(unit, file))

    answer = perform(request, options, act, body=file.content)
    return Status(HTTPStatus.CREATED if answer.changed else HTTPStatus.OK, answer)


@router.delete(
    "/artifacts/{sha256}", auth=admin, response=WriteAnswer, tags=["artifacts"], summary="Delete an unused file"
)
def delete_artifact(request: HttpRequest, sha256: str, options: Options) -> WriteAnswer:
    return perform(
        request,
        options,
        lambda unit: artifacts.delete(unit, sha256),
        current=lambda: artifacts.describe(artifacts.get(sha256)),
    )
