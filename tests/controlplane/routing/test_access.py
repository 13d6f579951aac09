from __future__ import annotations

import pytest

from controlplane.core.models import Role
from controlplane.routing.api import router
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/routes", Role.VIEWER),
    Call("POST", "/routes", Role.OPERATOR),
    Call("GET", "/routes/{name}", Role.VIEWER),
    Call("PATCH", "/routes/{name}", Role.OPERATOR),
    Call("DELETE", "/routes/{name}", Role.OPERATOR),
    Call("POST", "/routes/test", Role.VIEWER),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)
