from __future__ import annotations

import pytest

from controlplane.core.models import Role
from controlplane.fleet.acts_api import router as acts_router
from controlplane.fleet.api import router
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/models", Role.VIEWER),
    Call("POST", "/models", Role.ADMIN),
    Call("GET", "/models/{path:name}", Role.VIEWER),
    Call("PATCH", "/models/{path:name}", Role.ADMIN),
    Call("DELETE", "/models/{path:name}", Role.ADMIN),
    Call("GET", "/aliases", Role.VIEWER),
    Call("POST", "/aliases", Role.ADMIN),
    Call("GET", "/aliases/{path:name}", Role.VIEWER),
    Call("PATCH", "/aliases/{path:name}", Role.ADMIN),
    Call("DELETE", "/aliases/{path:name}", Role.ADMIN),
    Call("GET", "/pools", Role.VIEWER),
    Call("POST", "/pools", Role.OPERATOR),
    Call("GET", "/pools/{name}", Role.VIEWER),
    Call("PATCH", "/pools/{name}", Role.OPERATOR),
    Call("DELETE", "/pools/{name}", Role.OPERATOR),
    Call("GET", "/nodes", Role.VIEWER),
    Call("POST", "/nodes", Role.OPERATOR),
    Call("GET", "/nodes/{name}", Role.VIEWER),
    Call("DELETE", "/nodes/{name}", Role.OPERATOR),
    Call("POST", "/nodes/{name}/cordon", Role.OPERATOR),
    Call("POST", "/nodes/{name}/uncordon", Role.OPERATOR),
    Call("GET", "/engines", Role.VIEWER),
    Call("POST", "/engines", Role.OPERATOR),
    Call("GET", "/engines/{name}", Role.VIEWER),
    Call("PATCH", "/engines/{name}", Role.OPERATOR),
    Call("DELETE", "/engines/{name}", Role.OPERATOR),
    Call("POST", "/engines/{name}/cordon", Role.OPERATOR),
    Call("POST", "/engines/{name}/uncordon", Role.OPERATOR),
    Call("GET", "/gpus", Role.VIEWER),
    Call("GET", "/artifacts", Role.VIEWER),
    Call("POST", "/artifacts", Role.ADMIN),
    Call("DELETE", "/artifacts/{sha256}", Role.ADMIN),
]
ACT_CALLS = [
    Call("GET", "/acts", Role.VIEWER),
    Call("POST", "/acts", Role.OPERATOR),
    Call("GET", "/acts/{act_id}", Role.VIEWER),
    Call("POST", "/acts/{act_id}/cancel", Role.OPERATOR),
]


@pytest.mark.parametrize("call", CALLS + ACT_CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    # Where the whole API is put together, the call with which targets fetch a file is added; it has tests of its own.
    fetch = ("GET", "/artifacts/{sha256}")
    assert {call[:2] for call in CALLS} == routes_of(router) - {fetch}
    assert {call[:2] for call in ACT_CALLS} == routes_of(acts_router)
