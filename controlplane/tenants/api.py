"""REST of tenants, their keys and priority classes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Id, Limit, Page, add_noun
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from controlplane.tenants import services
from controlplane.tenants.services.keys import KeyFields
from wire.canonical import Document

router = Router()
add_noun(router, "/tenants", services.TENANTS, write=operator)
add_noun(router, "/priority-classes", services.PRIORITY_CLASSES, write=operator)

KeyBody = Annotated[dict[str, Any], ShownAs(KeyFields), Body()]


@router.get("/tenants/{name}/keys", auth=viewer, response=Page, tags=["keys"], summary="List a tenant's keys")
def list_keys(request: HttpRequest, name: str, limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    found, following = services.page_keys(services.get(name), limit, after)
    return Page(items=[services.describe_key(row) for row in found], next=following)


@router.post(
    "/tenants/{name}/keys", auth=operator, response={201: WriteAnswer}, tags=["keys"], summary="Create key; shown once"
)
def create_key(request: HttpRequest, name: str, options: Options, body: KeyBody) -> Status[WriteAnswer]:
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        row, secret = services.create_key(unit, name, body)
        secrets.append(secret)
        return services.describe_key(row)

    return Status(HTTPStatus.CREATED, perform(request, options, act, secret=secrets.pop))


@router.get("/keys/{int:key_id}", auth=viewer, response=dict[str, Any], tags=["keys"], summary="Read a key")
def read_key(request: HttpRequest, key_id: Id) -> Document:
    return services.describe_key(services.get_key(key_id))


@router.patch("/keys/{int:key_id}", auth=operator, response=WriteAnswer, tags=["keys"], summary="Change a key")
def change_key(request: HttpRequest, key_id: Id, options: Options, body: KeyBody) -> WriteAnswer:
    """Block or unblock it, label it, let it expire."""
    return perform(request, options, lambda unit: services.describe_key(services.update_key(unit, key_id, body)))


@router.delete("/keys/{int:key_id}", auth=operator, response=WriteAnswer, tags=["keys"], summary="Delete a key")
def delete_key(request: HttpRequest, key_id: Id, options: Options) -> WriteAnswer:
    return perform(request, options, lambda unit: services.delete_key(unit, key_id))
