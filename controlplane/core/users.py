"""The only writer of users: people, their role and password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from msgspec import Meta
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core import scope
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.models import Role, User
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.scope import TenantNames
from wire.canonical import Document
from wire.problems import Problem

NOUN = "user"
# Django's characters without its letters of all scripts: names stand in logs, URLs and shells. The audit's `actor`
# holds a user's name and a token's.
LIKE_USERNAME = f.Like(
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@+-]{1,63}$(?!\n)")],
    "give 1 to 63 of letters, digits and _ . @ + -",
)
# Every hash reads the whole password, so its length is bounded.
Password = Annotated[f.Text, Field(max_length=200)]


class UserFields(f.Fields):
    """What may be changed of a user. `password` is written and never read. `tenants` null: of the whole fleet."""

    role: Annotated[Role, Field(strict=False)] = f.default_of(User, "role")
    is_active: bool = True
    tenants: TenantNames | None = None
    password: Password


class NewUser(UserFields):
    username: Annotated[str, LIKE_USERNAME]


def describe(row: User) -> Document:
    return {
        "username": row.username,
        "role": row.role,
        "is_active": row.is_active,
        "tenants": row.tenants,
        # Where the person logs in; null: here, by password.
        "oidc_issuer": row.oidc_issuer,
        "created_at": f.iso(row.date_joined),
        "last_login_at": f.iso(row.last_login),
    }


def get(username: str) -> User:
    return _found(username, lock=False)


def known(username: str) -> Document | None:
    """The public form; None where there is nobody of this name."""
    try:
        return describe(get(username))
    except NotFound:
        return None


def page(limit: int = PAGE_ROWS, after: str = "") -> tuple[list[User], str | None]:
    """Users by name, after `after`."""
    return page_of(User.objects.filter(username__gt=after).order_by("username"), limit, lambda user: user.username)


def create(unit: UnitOfWork, username: str, fields: Mapping[str, Any]) -> User:
    """A person who may log in. Raises Refused with every problem, Conflict where the name is taken."""
    values = f.read(NewUser, {**fields, "username": username})
    _check_tenants(unit, values.role, values.tenants)
    row = User(username=username, role=values.role, is_active=values.is_active, tenants=values.tenants)
    _set_password(row, values.password)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        taken = Problem("/username", "unique", "choose another name")
        raise Conflict(f"user {username!r} exists already", [taken]) from error
    unit.record(NOUN, username, None, describe(row))
    return row


def update(unit: UnitOfWork, username: str, fields: Mapping[str, Any]) -> User:
    """Change role, tenants, password, or whether the person may log in. Each ends the log-ins that the person has.

    Raises Conflict where nobody would be left who administers.
    """
    # Locked in one order before the judgement, so that of two admins who demote each other one is refused. Admins of
    # the OpenID provider do not count: one with a password must be left for the day when it is away.
    local_admins = User.objects.filter(role=Role.ADMIN, is_active=True, oidc_issuer=None)
    admins = list(local_admins.select_for_update().order_by("pk"))
    row = _found(username, lock=True)
    before = describe(row)
    current: Document = {"role": row.role, "is_active": row.is_active, "tenants": row.tenants, "password": ""}
    values = f.read(UserFields, {**current, **fields})
    _check_tenants(unit, values.role, values.tenants)
    row.role, row.is_active, row.tenants = values.role, values.is_active, values.tenants
    if admins == [row] and (row.role != Role.ADMIN or not row.is_active):
        raise Conflict(
            f"{username!r} is the last active admin with a password; make another one first", code="last_admin"
        )
    after = describe(row)
    if "password" in fields:
        refuse_of_provider(row)
        _set_password(row, values.password)
        # The password itself is in no record; that it changed is.
        after["password_changed"] = True
    if after != before:
        row.sessions_epoch += 1
    row.save()
    unit.record(NOUN, username, before, after)
    return row


def end_log_ins(unit: UnitOfWork, username: str) -> User:
    """End every log-in that the person has now, in all browsers. API tokens go on."""
    row = _found(username, lock=True)
    row.sessions_epoch += 1
    row.save(update_fields=["sessions_epoch"])
    unit.record(NOUN, username, describe(row), {**describe(row), "log_ins_ended": True})
    return row


def _check_tenants(unit: UnitOfWork, role: Role, tenants: list[str] | None) -> None:
    if role == Role.ADMIN and tenants is not None:
        message = "an admin is of the whole fleet; give null, or another role"
        f.refuse_if([Problem("/tenants", "whole_fleet", message)])
    scope.warn_of_unknown(unit, tenants)


def refuse_of_provider(row: User) -> None:
    """Raises Refused where the person has no password here, but one of the provider's."""
    if row.oidc_issuer is not None:
        message = f"this person logs in by {row.oidc_issuer}; a password would stay when that access ends"
        f.refuse_if([Problem("/password", "oidc", message)])


def _set_password(row: User, password: str) -> None:
    try:
        validate_password(password, row)
    except ValidationError as error:
        f.refuse_if([Problem("/password", str(one.code), " ".join(one.messages)) for one in error.error_list])
    row.set_password(password)


def _found(username: str, *, lock: bool) -> User:
    users = User.objects.select_for_update() if lock else User.objects.all()
    row = None if LIKE_USERNAME.refusal(username) else users.filter(username=username).first()
    if row is None:
        raise NotFound(f"there is no user {username!r}")
    return row
