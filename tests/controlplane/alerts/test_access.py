from __future__ import annotations

import pytest

from controlplane.alerts.api import router
from controlplane.core.models import Role
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/events", Role.VIEWER),
    Call("GET", "/incidents", Role.VIEWER),
    Call("GET", "/incidents/{incident_id}", Role.VIEWER),
    Call("POST", "/incidents/{incident_id}/resolve", Role.OPERATOR),
    Call("GET", "/cordon-policy", Role.VIEWER),
    Call("PATCH", "/cordon-policy", Role.ADMIN),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    # What a target calls; a person's token is none (see test_events).
    assert {call[:2] for call in CALLS} == routes_of(router) - {("POST", "/events")}
