from __future__ import annotations

import pytest

from controlplane.core.models import Role
from controlplane.telemetry.decisions.api import router
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/decisions", Role.VIEWER),
    Call("GET", "/decisions/{path:request_id}", Role.VIEWER),
    Call("GET", "/sketches", Role.VIEWER),
    Call("GET", "/size-classes?model=m", Role.VIEWER),
    Call("POST", "/shadow", Role.VIEWER),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    # What a target calls; a person's token is none (see test_log and test_sketches).
    assert {(call.method, call.path.partition("?")[0]) for call in CALLS} == routes_of(router) - {
        ("POST", "/decisions"),
        ("POST", "/sketches"),
    }
