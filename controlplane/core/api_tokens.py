"""The only writer of API tokens, with which people's scripts call REST."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import AfterValidator, Field

from controlplane.core import fields as f
from controlplane.core import users
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Forbidden, NotFound
from controlplane.core.models import ApiToken, Role, User
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.scope import TenantNames, both, check_scopes, some, warn_of_unknown
from controlplane.core.tokens import bearer, new_token, token_hash
from wire.canonical import Document
from wire.problems import Problem, pointer

NOUN = "api token"
DAYS, DAYS_MAX = 90, 365
SCOPES_MAX = 50
Scopes = Annotated[
    list[Annotated[f.Text, Field(max_length=63)]],
    Field(
        min_length=1,
        max_length=SCOPES_MAX,
        description="Tags of this page whose calls the token may make, and `metrics` for /prometheus. Null: all.",
    ),
    AfterValidator(f.distinct),
]


class TokenFields(f.Fields):
    """A script's token: at most its maker's role, tenants and scopes, and never without an end.

    What is not given of `tenants` and `scopes` is as its maker's: null is all of the maker's.
    """

    name: f.Name
    role: Annotated[Role, Field(strict=False)] = Role.VIEWER
    tenants: TenantNames | None = None
    scopes: Scopes | None = None
    days: Annotated[int, Field(ge=1, le=DAYS_MAX, description="Days until it expires.")] = DAYS


def describe(row: ApiToken) -> Document:
    """The public form: never the token or its hash."""
    return {
        "id": row.pk,
        "user": row.user.username,
        "name": row.name,
        "role": row.role,
        "tenants": row.tenants,
        "scopes": row.scopes,
        "created_at": f.iso(row.created_at),
        "expires_at": f.iso(row.expires_at),
        "revoked_at": f.iso(row.revoked_at),
    }


def show(row: ApiToken) -> Document:
    """The public form, and when it was used last, which no audit holds and no precondition compares."""
    return {**describe(row), "last_used_at": f.iso(row.last_used_at)}


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
    tenants: list[str] | None = None,
    scopes: list[str] | None = None,
    at_most: Role | None = None,
    maker: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is nowhere stored.

    `at_most`: the role that its maker acts with now (default: the user's). `maker`: the token that makes it, which it
    does not outlive; a warning says so where it ends a day or more before it was asked to. Raises Forbidden above that
    role, Refused beyond the maker's tenants and scopes, Conflict where the user has a token of this name.
    """
    given = {"name": name, "role": role, "days": days, "tenants": tenants, "scopes": scopes}
    fields = f.read(TokenFields, given)
    check_scopes(fields.scopes)
    warn_of_unknown(unit, fields.tenants)
    user = users.get(username)
    allowed = at_most or Role(user.role)
    if not allowed.covers(fields.role):
        raise Forbidden(f"a token may have at most the role {allowed.value} here, not {fields.role.value}", code="role")
    expires_at = timezone.now() + timedelta(days=fields.days)
    if maker is not None and maker.expires_at < expires_at:
        _warn_of_early_end(unit, maker.expires_at, expires_at)
        expires_at = maker.expires_at
    secret = new_token("hwt")
    row = ApiToken(
        user=user,
        name=fields.name,
        role=fields.role,
        tenants=_bounded("tenants", fields.tenants, user.tenants, maker.tenants if maker else None),
        scopes=_bounded("scopes", fields.scopes, maker.scopes if maker else None),
        token_hash=token_hash(secret),
        expires_at=expires_at,
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


def _warn_of_early_end(unit: UnitOfWork, ends_at: datetime, asked: datetime) -> None:
    if asked - ends_at >= timedelta(days=1):
        message = (
            f"it ends at {f.iso(ends_at)}, with the token that makes it; for a longer one run headworks create-token"
        )
        unit.warnings.append(Problem("/days", "ends_with_maker", message))


def create_from(
    unit: UnitOfWork, user: User, fields: Mapping[str, Any], *, at_most: Role, maker: ApiToken | None
) -> tuple[ApiToken, str]:
    """The same from a REST body."""
    asked = f.read(TokenFields, fields)
    return create(
        unit,
        user.username,
        asked.name,
        asked.role,
        days=asked.days,
        tenants=asked.tenants,
        scopes=asked.scopes,
        at_most=at_most,
        maker=maker,
    )


def _bounded(field: str, asked: list[str] | None, *bounds: list[str] | None) -> list[str] | None:
    """What is asked for, or all that the bounds leave. Raises Refused where more is asked for."""
    allowed = None
    for bound in bounds:
        allowed = both(allowed, some(bound))
    if asked is None or allowed is None:
        return asked if allowed is None else sorted(allowed)
    message = f"beyond what the maker of this token has, which is {', '.join(sorted(allowed))}"
    f.refuse_if([Problem(pointer(f"/{field}", name), "beyond", message) for name in asked if name not in allowed])
    return asked


def lock(token_id: int, *, user: User | None) -> ApiToken:
    """Hold the token until the transaction ends. `user`: only if it is theirs; None: anyone's. Raises NotFound."""
    tokens = ApiToken.objects.select_related("user").select_for_update(of=("self",)).filter(pk=token_id)
    row = (tokens if user is None else tokens.filter(user=user)).first()
    if row is None:
        raise NotFound(f"there is no API token {token_id}" + ("" if user is None else " of yours"))
    return row


def revoke(unit: UnitOfWork, token_id: int, *, user: User | None, revoker: ApiToken | None) -> ApiToken:
    """End a token now; a second time changes nothing. `user`: as in `lock`.

    `revoker`: the token that does it. Raises Forbidden where that one has a lesser role: whoever finds a dashboard's
    token must not be able to stop the scripts that administer.
    """
    row = lock(token_id, user=user)
    if revoker is not None and not Role(revoker.role).covers(Role(row.role)):
        raise Forbidden(f"a token of the role {revoker.role} cannot revoke one of the role {row.role}", code="role")
    before = describe(row)
    row.revoked_at = row.revoked_at or timezone.now()
    row.save(update_fields=["revoked_at"])
    unit.record(NOUN, str(row.pk), before, describe(row))
    return row
