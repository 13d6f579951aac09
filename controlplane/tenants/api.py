"""REST of tenants, their keys and limits, priority classes, session limits and cache policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router, Status

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import IF_MATCH, Current, tagged
from controlplane.core.rest import After, Id, Limit, Page, add_noun
from controlplane.core.scope import own_tenant
from controlplane.core.security import operator, viewer
from controlplane.core.writes import Options, WriteAnswer, WriteOptions, perform
from controlplane.tenants import services
from controlplane.tenants.models import TenantKey
from controlplane.tenants.services.keys import KeyFields, RotateFields
from controlplane.tenants.services.temporary_limits import TemporaryLimitsFields
from wire.canonical import Document

router = Router()
add_noun(router, "/tenants", services.TENANTS, write=operator, by_tenant=True, show=services.TENANTS.show)
add_noun(router, "/priority-classes", services.PRIORITY_CLASSES, write=operator, show=services.PRIORITY_CLASSES.show)
add_noun(router, "/session-limits", services.SESSION_LIMITS, write=operator)
add_noun(router, "/cache-policies", services.CACHE_POLICIES, write=operator)


def own_key(tenants: frozenset[str], path: Mapping[str, Any]) -> None:
    """The judge of calls whose path holds a key's number."""
    if services.get_key(path["key_id"]).tenant.name not in tenants:
        raise NotFound(f"there is no key {path['key_id']}")


key_reader, key_writer = viewer.within(own_key), operator.within(own_key)
KeyBody = Annotated[dict[str, Any], ShownAs(KeyFields), Body()]
RotateBody = Annotated[dict[str, Any], ShownAs(RotateFields), Body()]
TemporaryLimitsBody = Annotated[dict[str, Any], ShownAs(TemporaryLimitsFields), Body()]


def _tenant(name: str) -> Current:
    return lambda: services.describe(services.TENANTS.lock(name))


@router.post(
    "/tenants/{name}/temporary-limits",
    auth=operator,
    response={201: WriteAnswer},
    tags=["tenants"],
    summary="Give limits for a time",
    openapi_extra=IF_MATCH,
)
def give_temporary_limits(
    request: HttpRequest, name: str, options: Options, body: TemporaryLimitsBody
) -> Status[WriteAnswer]:
    """Until they expire, 31 days at most, or are taken back: before the tenant's own limits and its schedule.

    They take the place of those that were given before. A rollback leaves them as they are.
    """
    answer = perform(
        request,
        options,
        lambda unit: services.describe(services.give_temporary_limits(unit, name, body)),
        current=_tenant(name),
    )
    return Status(HTTPStatus.CREATED, answer)


@router.delete(
    "/tenants/{name}/temporary-limits",
    auth=operator,
    response=WriteAnswer,
    tags=["tenants"],
    summary="Take temporary limits back",
)
def take_back_temporary_limits(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    return perform(
        request,
        options,
        lambda unit: services.describe(services.take_back_temporary_limits(unit, name)),
        current=_tenant(name),
    )


@router.get(
    "/tenants/{name}/keys", auth=viewer.within(own_tenant), response=Page, tags=["keys"], summary="List a tenant's keys"
)
def list_keys(request: HttpRequest, name: str, limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    found, following = services.page_keys(services.get(name), limit, after)
    return Page(items=[services.describe_key(row) for row in found], next=following)


@router.post(
    "/tenants/{name}/keys",
    auth=operator.within(own_tenant),
    response={201: WriteAnswer},
    tags=["keys"],
    summary="Create key; shown once",
)
def create_key(request: HttpRequest, name: str, options: Options, body: KeyBody) -> Status[WriteAnswer]:
    return _new_key(request, options, lambda unit: services.create_key(unit, name, body))


@router.post(
    "/keys/{int:key_id}/rotate",
    auth=key_writer,
    response={201: WriteAnswer},
    tags=["keys"],
    summary="Rotate key; the new one is shown once",
    openapi_extra=IF_MATCH,
)
def rotate_key(request: HttpRequest, key_id: Id, options: Options, body: RotateBody) -> Status[WriteAnswer]:
    """A new key with the same label. The old one goes on working for `overlap_seconds`, 30 days at most."""
    return _new_key(
        request, options, lambda unit: services.rotate_key(unit, key_id, body), current=lambda: _public_key(key_id)
    )


def _new_key(
    request: HttpRequest,
    options: WriteOptions,
    make: Callable[[UnitOfWork], tuple[TenantKey, str]],
    current: Current | None = None,
) -> Status[WriteAnswer]:
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        row, secret = make(unit)
        secrets.append(secret)
        return services.describe_key(row)

    return Status(HTTPStatus.CREATED, perform(request, options, act, current=current, secret=secrets.pop))


@router.get("/keys/{int:key_id}", auth=key_reader, response=dict[str, Any], tags=["keys"], summary="Read a key")
def read_key(request: HttpRequest, key_id: Id) -> Document:
    return tagged(request, _public_key(key_id))


@router.patch("/keys/{int:key_id}", auth=key_writer, response=WriteAnswer, tags=["keys"], summary="Change a key")
def change_key(request: HttpRequest, key_id: Id, options: Options, body: KeyBody) -> WriteAnswer:
    """Block or unblock it, label it, let it expire.

    An operator of the whole fleet may block it and bring its end forward, no more.
    """
    return perform(
        request,
        options,
        lambda unit: services.describe_key(services.update_key(unit, key_id, body)),
        current=lambda: _public_key(key_id),
    )


@router.delete("/keys/{int:key_id}", auth=key_writer, response=WriteAnswer, tags=["keys"], summary="Delete a key")
def delete_key(request: HttpRequest, key_id: Id, options: Options) -> WriteAnswer:
    return perform(
        request, options, lambda unit: services.delete_key(unit, key_id), current=lambda: _public_key(key_id)
    )


def _public_key(key_id: int) -> Document:
    return services.describe_key(services.get_key(key_id))
