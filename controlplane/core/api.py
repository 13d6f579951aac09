"""REST of people: who am I, users, API tokens, audit."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Body, Query, Router, Status

from controlplane.core import api_tokens, audit, audit_export, users
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Forbidden
from controlplane.core.fields import ShownAs
from controlplane.core.models import ApiToken, Role, User
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import IF_NONE_MATCH, tagged
from controlplane.core.rest import After, Filter, Id, Limit, Page, changes_of
from controlplane.core.scope import any_of_theirs
from controlplane.core.security import Caller, admin, caller_in, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router()

NewUserBody = Annotated[dict[str, Any], ShownAs(users.NewUser), Body()]
UserBody = Annotated[dict[str, Any], ShownAs(changes_of(users.UserFields)), Body()]
_FILES = audit_export.CONTENT_TYPES.values()
TokenBody = Annotated[dict[str, Any], ShownAs(api_tokens.TokenFields), Body()]


# What is of the caller alone, or left out of by tenant.
own = viewer.within(any_of_theirs)


@router.get("/me", auth=own, response=dict[str, Any], tags=["users"], summary="Who am I, and what may I do")
def me(request: HttpRequest) -> Document:
    caller = caller_in(request)
    return {
        **users.describe(caller.user),
        "acting_as": caller.actor.name,
        "acting_role": caller.role,
        "acting_tenants": None if caller.tenants is None else sorted(caller.tenants),
        "acting_scopes": None if caller.scopes is None else sorted(caller.scopes),
    }


@router.post("/me/end-log-ins", auth=own, response=WriteAnswer, tags=["users"], summary="Log yourself out everywhere")
def end_own_log_ins(request: HttpRequest, options: Options) -> WriteAnswer:
    """In all browsers, this one too. API tokens go on."""
    name = caller_in(request).user.username
    return perform(request, options, lambda unit: users.describe(users.end_log_ins(unit, name)))


@router.get("/users", auth=viewer, response=Page, tags=["users"], summary="List users")
def list_users(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    found, following = users.page(limit, after)
    return Page(items=[users.describe(row) for row in found], next=following)


@router.post(
    "/users", auth=admin, response={201: WriteAnswer}, tags=["users"], summary="Create user",
    openapi_extra=IF_NONE_MATCH,
)  # fmt: skip
def create_user(request: HttpRequest, options: Options, body: NewUserBody) -> Status[WriteAnswer]:
    username = body.pop("username", "")
    answer = perform(
        request,
        options,
        lambda unit: users.describe(users.create(unit, username, body)),
        current=lambda: users.known(username),
    )
    return Status(HTTPStatus.CREATED, answer)


@router.get("/users/{username}", auth=viewer, response=dict[str, Any], tags=["users"], summary="Read user")
def read_user(request: HttpRequest, username: str) -> Document:
    return tagged(request, users.describe(users.get(username)))


@router.patch("/users/{username}", auth=admin, response=WriteAnswer, tags=["users"], summary="Change user")
def change_user(request: HttpRequest, username: str, options: Options, body: UserBody) -> WriteAnswer:
    """Role, password, or (is_active false) no log-in and no tokens any more. The last active admin stays."""
    return perform(
        request,
        options,
        lambda unit: users.describe(users.update(unit, username, body)),
        current=lambda: users.describe(users.get(username)),
    )


@router.post(
    "/users/{username}/end-log-ins",
    auth=admin,
    response=WriteAnswer,
    tags=["users"],
    summary="Log a user out everywhere",
)
def end_log_ins(request: HttpRequest, username: str, options: Options) -> WriteAnswer:
    """In all browsers. API tokens go on: revoke them, or set is_active false, to end these too."""
    return perform(request, options, lambda unit: users.describe(users.end_log_ins(unit, username)))


@router.get("/api-tokens", auth=own, response=Page, tags=["API tokens"], summary="List API tokens")
def list_tokens(
    request: HttpRequest,
    everyone: Annotated[bool, Query(description="Of all users (admins only) instead of your own.")] = False,
    limit: Limit = PAGE_ROWS,
    after: After = 0,
) -> Page:
    """`last_used_at`: to a minute; null: never."""
    found, following = api_tokens.page(_whose(request, everyone), limit, after)
    return Page(items=[api_tokens.show(row) for row in found], next=following)


@router.post("/api-tokens", auth=own, response={201: WriteAnswer}, tags=["API tokens"], summary="Create; shown once")
def create_token(request: HttpRequest, options: Options, body: TokenBody) -> Status[WriteAnswer]:
    """Of your own, with at most the role, tenants and scopes that you act with now.

    One that a token makes ends with it at the latest.
    """
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        caller = caller_in(request)
        row, secret = api_tokens.create_from(unit, caller.user, body, at_most=caller.role, maker=_acting_token(request))
        secrets.append(secret)
        return api_tokens.describe(row)

    return Status(HTTPStatus.CREATED, perform(request, options, act, secret=secrets.pop))


@router.delete("/api-tokens/{int:token_id}", auth=own, response=WriteAnswer, tags=["API tokens"], summary="Revoke")
def revoke_token(request: HttpRequest, token_id: Id, options: Options) -> WriteAnswer:
    """Your own; admins also those of others. A token revokes none of a higher role than its own."""
    whose = _whose(request, everyone=_of_all(caller_in(request)))

    def act(unit: UnitOfWork) -> Document:
        return api_tokens.describe(api_tokens.revoke(unit, token_id, user=whose, revoker=_acting_token(request)))

    def current() -> Document:
        return api_tokens.describe(api_tokens.lock(token_id, user=whose))

    return perform(request, options, act, current=current)


@router.get("/audit", auth=own, response=Page, tags=["audit"], summary="Who changed what, newest first")
def list_audit(
    request: HttpRequest, search: Annotated[audit.Search, Query()], limit: Limit = PAGE_ROWS, after: After = 0
) -> Page:
    found, following = audit.page(search.entries(caller_in(request).tenants), limit, after)
    return Page(items=[audit.describe(row) for row in found], next=following)


@router.get(
    "/audit/export", auth=own, response={200: None}, tags=["audit"], summary="The audit as a file, oldest first",
    openapi_extra={"responses": {200: {"content": {kind: {"schema": {"type": "string"}} for kind in _FILES}}}},
)  # fmt: skip
def export_audit(
    request: HttpRequest,
    search: Annotated[audit.Search, Query()],
    form: Annotated[audit_export.Format, Query(alias="format")] = "jsonl",
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Only entries newer than the one with this id.")] = 0,
) -> StreamingHttpResponse:
    """JSON lines, or CSV in which no cell is a formula. An entry's revision is null until it is published."""
    return audit_export.exported(search.entries(caller_in(request).tenants), form, after)


def _acting_token(request: HttpRequest) -> ApiToken | None:
    return api_tokens.acting(request.headers.get("authorization"))


def _whose(request: HttpRequest, everyone: bool) -> User | None:
    caller = caller_in(request)
    if not everyone:
        return caller.user
    if not _of_all(caller):
        raise Forbidden(f"tokens of others need the role admin of the whole fleet; yours is {caller.role.value}")
    return None


def _of_all(caller: Caller) -> bool:
    return caller.role.covers(Role.ADMIN) and caller.tenants is None
