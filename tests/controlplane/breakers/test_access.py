from __future__ import annotations

import pytest

from controlplane.breakers.api import router
from controlplane.core.models import Role
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/breakers", Role.VIEWER),
    Call("GET", "/overrides", Role.VIEWER),
    Call("POST", "/overrides", Role.OPERATOR),
    Call("GET", "/overrides/{name}", Role.VIEWER),
    Call("DELETE", "/overrides/{name}", Role.OPERATOR),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)
