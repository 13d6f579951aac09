"""The only writer of API tokens, with which people's scripts call REST."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core import users
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Forbidden, NotFound
from controlplane.core.models import ApiToken, Role, User
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.tokens import bearer, new_token, token_hash
from wire.canonical import Document
from wire.problems import Problem

NOUN = "api token"
DAYS, DAYS_MAX = 90, 365


class TokenFields(f.Fields):
    """A script's token: at most its maker's role, and never without an end."""

    name: f.Name
    role: Annotated[Role, Field(strict=False)] = Role.VIEWER
    days: Annotated[int, Field(ge=1, le=DAYS_MAX, description="Days until it expires.")] = DAYS


def describe(row: ApiToken) -> Document:
    """The public form: never the token or its hash."""
    return {
        "id": row.pk,
        "user": row.user.username,
        "name": row.name,
        "role": row.role,
        "created_at": f.iso(row.created_at),
        "expires_at": f.iso(row.expires_at),
        "revoked_at": f.iso(row.revoked_at),
    }


def page(user: User | None, limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[ApiToken], int | None]:
    """The tokens of a user, or (None) of everyone, oldest first."""
    tokens = ApiToken.objects.select_related("user").filter(pk__gt=after)
    if user is not None:
        tokens = tokens.filter(user=user)
    return page_of(tokens.order_by("pk"), limit, lambda token: token.pk)


def acting(authorization: str | None) -> ApiToken | None:
    """The token that this Authorization header shows; None in a browser, which sends none."""
    return ApiToken.objects.filter(token_hash=token_hash(bearer(authorization) or "")).first()


def create(
    unit: UnitOfWork,
    username: str,
    name: str,
    role: str,
    *,
    days: int = DAYS,
    at_most: Role | None = None,
    maker: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is nowhere stored.

    `at_most`: the role that its maker acts with now (default: the user's). `maker`: the token that makes it, which it
    does not outlive. Raises Forbidden above that role, Conflict where the user has a token of this name.
    """
    fields = f.read(TokenFields, {"name": name, "role": role, "days": days})
    user = users.get(username)
    allowed = at_most or Role(user.role)
    if not allowed.covers(fields.role):
        raise Forbidden(f"a token may have at most the role {allowed.value} here, not {fields.role.value}", code="role")
    expires_at = timezone.now() + timedelta(days=fields.days)
    secret = new_token("hwt")
    row = ApiToken(
        user=user,
        name=fields.name,
        role=fields.role,
        token_hash=token_hash(secret),
        expires_at=expires_at if maker is None else min(expires_at, maker.expires_at),
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        right = "choose another name; names of revoked tokens stay taken"
        message = f"{username} has an API token {name!r} already; {right}"
        raise Conflict(message, [Problem("/name", "unique", right)]) from error
    unit.record(NOUN, str(row.pk), None, describe(row))
    return row, secret


def create_from(
    unit: UnitOfWork, user: User, fields: Mapping[str, Any], *, at_most: Role, maker: ApiToken | None
) -> tuple[ApiToken, str]:
    """The same from a REST body."""
    asked = f.read(TokenFields, fields)
    return create(unit, user.username, asked.name, asked.role, days=asked.days, at_most=at_most, maker=maker)


def revoke(unit: UnitOfWork, token_id: int, *, user: User | None, revoker: ApiToken | None) -> ApiToken:
    """End a token now; a second time changes nothing. `user`: only if it is theirs; None: anyone's.

    `revoker`: the token that does it. Raises Forbidden where that one has a lesser role: whoever finds a dashboard's
    token must not be able to stop the scripts that administer.
    """
    tokens = ApiToken.objects.select_related("user").select_for_update(of=("self",)).filter(pk=token_id)
    row = (tokens if user is None else tokens.filter(user=user)).first()
    if row is None:
        raise NotFound(f"there is no API token {token_id}" + ("" if user is None else " of yours"))
    if revoker is not None and not Role(revoker.role).covers(Role(row.role)):
        raise Forbidden(f"a token of the role {revoker.role} cannot revoke one of the role {row.role}", code="role")
    before = describe(row)
    row.revoked_at = row.revoked_at or timezone.now()
    row.save(update_fields=["revoked_at"])
    unit.record(NOUN, str(row.pk), before, describe(row))
    return row
