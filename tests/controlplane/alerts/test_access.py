from __future__ import annotations

import pytest

from controlplane.alerts import api, incidents_api, pipeline_api
from controlplane.core.models import Role
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/events", Role.VIEWER),
    Call("GET", "/cordon-policy", Role.VIEWER),
    Call("PATCH", "/cordon-policy", Role.ADMIN),
]
INCIDENT_CALLS = [
    Call("GET", "/incidents", Role.VIEWER),
    Call("GET", "/incidents/{incident_id}", Role.VIEWER),
    Call("GET", "/incidents/{incident_id}/alerts", Role.VIEWER),
    Call("GET", "/incidents/{incident_id}/evidence", Role.VIEWER),
    Call("POST", "/incidents/{incident_id}/resolve", Role.OPERATOR),
    Call("POST", "/incidents/{incident_id}/acknowledge", Role.OPERATOR),
    Call("POST", "/incidents/{incident_id}/assign", Role.OPERATOR),
    Call("POST", "/incidents/{incident_id}/snooze", Role.OPERATOR),
    Call("POST", "/incidents/{incident_id}/comment", Role.OPERATOR),
]
PIPELINE_CALLS = [
    Call("GET", "/alert-routes/test", Role.VIEWER),
    Call("POST", "/silences/{name}/expire", Role.OPERATOR),
    *(
        Call(method, path, Role.VIEWER if method == "GET" else role)
        for noun, role in (
            ("/alert-routes", Role.ADMIN),
            ("/inhibitions", Role.ADMIN),
            ("/silences", Role.OPERATOR),
            ("/maintenance-windows", Role.OPERATOR),
        )
        for method, path in (
            ("GET", noun),
            ("POST", noun),
            ("GET", f"{noun}/{{name}}"),
            ("PATCH", f"{noun}/{{name}}"),
            ("DELETE", f"{noun}/{{name}}"),
        )
    ),
]


@pytest.mark.parametrize("call", CALLS + INCIDENT_CALLS + PIPELINE_CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    # What a target calls; a person's token is none (see test_events).
    assert {call[:2] for call in CALLS} == routes_of(api.router) - {("POST", "/events")}
    assert {call[:2] for call in INCIDENT_CALLS} == routes_of(incidents_api.router)
    assert {call[:2] for call in PIPELINE_CALLS} == routes_of(pipeline_api.router)
