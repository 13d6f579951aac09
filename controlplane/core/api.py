"""REST of people: who am I, users, API tokens, audit."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status

from controlplane.core import api_tokens, audit, users
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Forbidden
from controlplane.core.fields import ShownAs
from controlplane.core.models import ApiToken, Role, User
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Filter, Id, Limit, Page, changes_of
from controlplane.core.security import Caller, admin, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router()

NewUserBody = Annotated[dict[str, Any], ShownAs(users.NewUser), Body()]
UserBody = Annotated[dict[str, Any], ShownAs(changes_of(users.UserFields)), Body()]
TokenBody = Annotated[dict[str, Any], ShownAs(api_tokens.TokenFields), Body()]


def caller_in(request: HttpRequest) -> Caller:
    caller: Caller = request.auth  # type: ignore[attr-defined]
    return caller


@router.get("/me", auth=viewer, response=dict[str, Any], tags=["users"], summary="Who am I, and what may I do")
def me(request: HttpRequest) -> Document:
    caller = caller_in(request)
    return {**users.describe(caller.user), "acting_as": caller.actor.name, "acting_role": caller.role}


@router.get("/users", auth=viewer, response=Page, tags=["users"], summary="List users")
def list_users(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    found, following = users.page(limit, after)
    return Page(items=[users.describe(row) for row in found], next=following)


@router.post("/users", auth=admin, response={201: WriteAnswer}, tags=["users"], summary="Create user")
def create_user(request: HttpRequest, options: Options, body: NewUserBody) -> Status[WriteAnswer]:
    username = body.pop("username", "")
    answer = perform(request, options, lambda unit: users.describe(users.create(unit, username, body)))
    return Status(HTTPStatus.CREATED, answer)


@router.get("/users/{username}", auth=viewer, response=dict[str, Any], tags=["users"], summary="Read user")
def read_user(request: HttpRequest, username: str) -> Document:
    return users.describe(users.get(username))


@router.patch("/users/{username}", auth=admin, response=WriteAnswer, tags=["users"], summary="Change user")
def change_user(request: HttpRequest, username: str, options: Options, body: UserBody) -> WriteAnswer:
    """Role, password, or (is_active false) no log-in and no tokens any more. The last active admin stays."""
    return perform(request, options, lambda unit: users.describe(users.update(unit, username, body)))


@router.get("/api-tokens", auth=viewer, response=Page, tags=["API tokens"], summary="List API tokens")
def list_tokens(
    request: HttpRequest,
    everyone: Annotated[bool, Query(description="Of all users (admins only) instead of your own.")] = False,
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    found, following = api_tokens.page(_whose(request, everyone), limit, after)
    return Page(items=[api_tokens.describe(row) for row in found], next=following)


@router.post("/api-tokens", auth=viewer, response={201: WriteAnswer}, tags=["API tokens"], summary="Create; shown once")
def create_token(request: HttpRequest, options: Options, body: TokenBody) -> Status[WriteAnswer]:
    """Of your own, with at most the role that you act with now. One that a token makes ends with it at the latest."""
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        caller = caller_in(request)
        row, secret = api_tokens.create_from(unit, caller.user, body, at_most=caller.role, maker=_acting_token(request))
        secrets.append(secret)
        return api_tokens.describe(row)

    return Status(HTTPStatus.CREATED, perform(request, options, act, secret=secrets.pop))


@router.delete("/api-tokens/{int:token_id}", auth=viewer, response=WriteAnswer, tags=["API tokens"], summary="Revoke")
def revoke_token(request: HttpRequest, token_id: Id, options: Options) -> WriteAnswer:
    """Your own; admins also those of others. A token revokes none of a higher role than its own."""
    whose = _whose(request, everyone=caller_in(request).role.covers(Role.ADMIN))

    def act(unit: UnitOfWork) -> Document:
        return api_tokens.describe(api_tokens.revoke(unit, token_id, user=whose, revoker=_acting_token(request)))

    return perform(request, options, act)


@router.get("/audit", auth=viewer, response=Page, tags=["audit"], summary="Who changed what, newest first")
def list_audit(
    request: HttpRequest,
    noun: Filter = "",
    key: Filter = "",
    actor: Filter = "",
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    found, following = audit.page(noun=noun, key=key, actor=actor, limit=limit, after=after)
    return Page(items=[audit.describe(row) for row in found], next=following)


def _acting_token(request: HttpRequest) -> ApiToken | None:
    return api_tokens.acting(request.headers.get("authorization"))


def _whose(request: HttpRequest, everyone: bool) -> User | None:
    caller = caller_in(request)
    if not everyone:
        return caller.user
    if not caller.role.covers(Role.ADMIN):
        raise Forbidden(f"tokens of others need the role admin; yours is {caller.role.value}")
    return None
