"""People and tokens that are narrower than their role."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from controlplane.core.models import ApiToken, Role, User
from controlplane.core.tokens import new_token, token_hash
from tests.controlplane.conftest import Rest


def token_of(user: User, **fields: object) -> Rest:
    """A script of this user, with a new token of their role."""
    secret = new_token("hwt")
    given = {"role": user.role, "name": f"token-{ApiToken.objects.count()}"} | fields
    ApiToken.objects.create(
        user=user, token_hash=token_hash(secret), expires_at=timezone.now() + timedelta(hours=1), **given
    )
    return Rest(secret)


def person(role: Role = Role.OPERATOR, tenants: list[str] | None = None, **fields: object) -> User:
    return User.objects.create(username=f"person-{User.objects.count()}", role=role, tenants=tenants, **fields)
