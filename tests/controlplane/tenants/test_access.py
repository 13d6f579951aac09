from __future__ import annotations

import pytest

from controlplane.core.models import Role
from controlplane.tenants.api import router
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/tenants", Role.VIEWER),
    Call("POST", "/tenants", Role.OPERATOR),
    Call("GET", "/tenants/{name}", Role.VIEWER),
    Call("PATCH", "/tenants/{name}", Role.OPERATOR),
    Call("DELETE", "/tenants/{name}", Role.OPERATOR),
    Call("POST", "/tenants/{name}/temporary-limits", Role.OPERATOR),
    Call("DELETE", "/tenants/{name}/temporary-limits", Role.OPERATOR),
    Call("GET", "/tenants/{name}/keys", Role.VIEWER),
    Call("POST", "/tenants/{name}/keys", Role.OPERATOR),
    Call("GET", "/keys/{int:key_id}", Role.VIEWER),
    Call("PATCH", "/keys/{int:key_id}", Role.OPERATOR),
    Call("DELETE", "/keys/{int:key_id}", Role.OPERATOR),
    Call("POST", "/keys/{int:key_id}/rotate", Role.OPERATOR),
    Call("GET", "/priority-classes", Role.VIEWER),
    Call("POST", "/priority-classes", Role.OPERATOR),
    Call("GET", "/priority-classes/{name}", Role.VIEWER),
    Call("PATCH", "/priority-classes/{name}", Role.OPERATOR),
    Call("DELETE", "/priority-classes/{name}", Role.OPERATOR),
    Call("GET", "/session-limits", Role.VIEWER),
    Call("POST", "/session-limits", Role.OPERATOR),
    Call("GET", "/session-limits/{name}", Role.VIEWER),
    Call("PATCH", "/session-limits/{name}", Role.OPERATOR),
    Call("DELETE", "/session-limits/{name}", Role.OPERATOR),
    Call("GET", "/cache-policies", Role.VIEWER),
    Call("POST", "/cache-policies", Role.OPERATOR),
    Call("GET", "/cache-policies/{name}", Role.VIEWER),
    Call("PATCH", "/cache-policies/{name}", Role.OPERATOR),
    Call("DELETE", "/cache-policies/{name}", Role.OPERATOR),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)
