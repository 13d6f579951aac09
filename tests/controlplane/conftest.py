"""Callers of each role, by API token, against the whole site."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.core.models import ApiToken, Role, User
from controlplane.core.tokens import new_token, token_hash

REASON = "reason=because+of+a+test"


class Rest:
    """A script of one role. Bodies and answers are JSON; writes carry a reason unless the path already has one."""

    def __init__(self, token: str | None) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.client = Client(headers=headers)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        if method != "GET" and "reason=" not in path:
            path += ("&" if "?" in path else "?") + REASON
        extra = {"content_type": "application/json", "data": body} if body is not None else {}
        return self.client.generic(method, f"/api/v1{path}", **_encoded(extra), headers=headers or None)

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body if body is not None else {}, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("PATCH", path, body, **headers)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("PUT", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.call("DELETE", path, **headers)


def _encoded(extra: dict[str, Any]) -> dict[str, Any]:
    import json

    if "data" in extra and not isinstance(extra["data"], bytes):
        extra["data"] = json.dumps(extra["data"]).encode()
    return extra


@pytest.fixture
def rest_of(db: None) -> Callable[[Role | None], Rest]:
    def make(role: Role | None) -> Rest:
        if role is None:
            return Rest(None)
        user = User.objects.create(username=f"{role.value}-{User.objects.count()}", role=role)
        token = new_token("hwt")
        ApiToken.objects.create(
            user=user,
            name="test",
            role=role,
            token_hash=token_hash(token),
            expires_at=timezone.now() + timedelta(hours=1),
        )
        return Rest(token)

    return make


@pytest.fixture
def admin(rest_of: Callable[[Role | None], Rest]) -> Rest:
    return rest_of(Role.ADMIN)


@pytest.fixture
def operator(rest_of: Callable[[Role | None], Rest]) -> Rest:
    return rest_of(Role.OPERATOR)


@pytest.fixture
def viewer(rest_of: Callable[[Role | None], Rest]) -> Rest:
    return rest_of(Role.VIEWER)


@pytest.fixture
def outsider(rest_of: Callable[[Role | None], Rest]) -> Rest:
    return rest_of(None)
