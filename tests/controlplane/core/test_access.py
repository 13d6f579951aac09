from __future__ import annotations

import pytest

from controlplane.core.api import router
from controlplane.core.models import Role
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/me", Role.VIEWER),
    Call("POST", "/me/end-log-ins", Role.VIEWER),
    Call("GET", "/users", Role.VIEWER),
    Call("POST", "/users", Role.ADMIN),
    Call("GET", "/users/{username}", Role.VIEWER),
    Call("PATCH", "/users/{username}", Role.ADMIN),
    Call("POST", "/users/{username}/end-log-ins", Role.ADMIN),
    Call("GET", "/api-tokens", Role.VIEWER),
    Call("POST", "/api-tokens", Role.VIEWER),
    Call("DELETE", "/api-tokens/{int:token_id}", Role.VIEWER),
    Call("GET", "/audit", Role.VIEWER),
    Call("GET", "/audit/export", Role.VIEWER),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)
