"""People who log in by an OpenID Connect provider: whose row is whose, and what they may do.

Issuer and subject together find a person, and nothing else does: names and mail addresses can be given to somebody new.
A local user of the same name therefore stays another person.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import IntegrityError

from controlplane.core import api_tokens, oidc_rows, users
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.errors import Forbidden
from controlplane.core.models import ApiToken, Role, User
from controlplane.core.oidc_rows import Grant

_MARK_CHARACTERS = 12
_NAME_CHARACTERS_MAX = 63 - _MARK_CHARACTERS - 1


def grant_of(claims: Mapping[str, Any], claim: str, grants: Mapping[str, Grant]) -> Grant | None:
    """What the values of a claim give together: the highest role, for all the tenants that give it; None: nothing.

    `claim`: dots lead into objects; a value is a text or a list of texts.
    """
    given = [grants[value] for value in _values_at(claims, claim) if value in grants]
    if not given:
        return None
    order = [role.value for role in Role]
    role = max((grant.role for grant in given), key=order.index)
    bounds = [grant.tenants for grant in given if grant.role == role]
    names: set[str] = set()
    for bound in bounds:
        if bound is None:
            return Grant(role)
        names.update(bound)
    return Grant(role, tuple(sorted(names)))


def _values_at(claims: Mapping[str, Any], claim: str) -> list[str]:
    # A claim's own name may hold dots, as a URL does.
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return [value for value in values if isinstance(value, str)]


def admit(issuer: str, claims: Mapping[str, Any], address: str) -> User:
    """The user whom these checked claims are of, made at the first log-in, with the role that they give now.

    Raises Forbidden: `no_role` where they give none, which also ends what the person still has open here;
    `deactivated` where an admin here has ended the person's access.
    """
    subject = str(claims["sub"])
    grant = grant_of(claims, oidc_rows.ROLE_CLAIM.read(), oidc_rows.ROLES.read())
    row = _find(issuer, subject)
    if grant is None:
        if row is not None:
            _withdraw(row, address)
        raise Forbidden(
            f"none of your values of {oidc_rows.ROLE_CLAIM.read()!r} stands in HEADWORKS_OIDC_ROLES, which gives roles "
            "here; ask for a group that does",
            code="no_role",
        )
    if row is None or (row.role, row.tenants) != (grant.role, _names(grant)):
        row = _settle(issuer, subject, claims, grant, address)
    if not row.is_active:
        raise Forbidden(f"an admin has ended the access of {row.username}; ask one", code="deactivated")
    return row


def _find(issuer: str, subject: str) -> User | None:
    return User.objects.filter(oidc_issuer=issuer, oidc_subject=subject).first()


def _settle(issuer: str, subject: str, claims: Mapping[str, Any], grant: Grant, address: str) -> User:
    try:
        return _settled(issuer, subject, claims, grant, address)
    except IntegrityError:
        # Somebody else of this name came first meanwhile, so it is free no more.
        return _settled(issuer, subject, claims, grant, address)


def _settled(issuer: str, subject: str, claims: Mapping[str, Any], grant: Grant, address: str) -> User:
    """Make the row, or give it another role. One unit of work runs at a time, so two first log-ins make one row."""
    row = _find(issuer, subject)
    name = _free_name(claims, f"{issuer}\n{subject}") if row is None else row.username
    with unit_of_work(Actor("user", name, address), "logged in by the OpenID provider") as unit:
        row = _find(issuer, subject)
        before = None if row is None else users.describe(row)
        if row is None:
            row = User(username=name, oidc_issuer=issuer, oidc_subject=subject)
            row.set_unusable_password()
        else:
            row.sessions_epoch += 1
        row.role, row.tenants = Role(grant.role), _names(grant)
        row.save()
        unit.record(users.NOUN, row.username, before, users.describe(row))
    return row


def _withdraw(row: User, address: str) -> None:
    """Whom the provider gives no role any more: their log-ins here end, and their tokens."""
    with unit_of_work(Actor("user", row.username, address), "the OpenID provider gives no role any more") as unit:
        users.end_log_ins(unit, row.username)
        _revoke_all(unit, ApiToken.objects.filter(user=row, revoked_at=None).values_list("pk", flat=True))


def _revoke_all(unit: UnitOfWork, numbers: Iterable[int]) -> None:
    for number in list(numbers):
        api_tokens.revoke(unit, number, user=None, revoker=None)


def _names(grant: Grant) -> list[str] | None:
    return None if grant.tenants is None else list(grant.tenants)


def _free_name(claims: Mapping[str, Any], identity: str) -> str:
    """A name that nobody has, as near to the one at the provider as ours may be."""
    wish = re.sub(r"[^A-Za-z0-9_.@+-]+", "-", str(claims.get(oidc_rows.USERNAME_CLAIM.read()) or ""))
    wish = wish.strip("-")[:_NAME_CHARACTERS_MAX]
    # In any case of letters: two who differ in that alone would be taken for each other.
    if wish and not User.objects.filter(username__iexact=wish).exists():
        return wish
    mark = hashlib.sha256(identity.encode()).hexdigest()[:_MARK_CHARACTERS]
    return f"{wish or 'oidc'}-{mark}"
