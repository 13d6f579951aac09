from __future__ import annotations

import pytest

from controlplane.core.models import Role
from controlplane.fleet.acts_api import router as acts_router
from controlplane.fleet.api import router
from controlplane.fleet.compatibility_api import router as compatibility_router
from controlplane.fleet.model_files_api import router as model_files_router
from controlplane.fleet.versions_api import router as versions_router
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
COMPATIBILITY_CALLS = [
    Call("GET", "/compatibility-rules", Role.VIEWER),
    Call("POST", "/compatibility-rules", Role.ADMIN),
    Call("GET", "/compatibility-rules/{name}", Role.VIEWER),
    Call("PATCH", "/compatibility-rules/{name}", Role.ADMIN),
    Call("DELETE", "/compatibility-rules/{name}", Role.ADMIN),
    Call("GET", "/pools/{name}/compatibility", Role.VIEWER),
]
MODEL_FILES_CALLS = [
    Call("GET", "/model-files", Role.VIEWER),
    Call("POST", "/model-files/fetch", Role.OPERATOR),
    Call("POST", "/model-files/check", Role.OPERATOR),
]
VERSION_CALLS = [
    Call("GET", "/model-versions", Role.VIEWER),
    Call("POST", "/model-versions", Role.ADMIN),
    Call("GET", "/model-versions/{version_id}", Role.VIEWER),
    Call("DELETE", "/model-versions/{version_id}", Role.ADMIN),
    Call("POST", "/model-versions/{version_id}/retire", Role.ADMIN),
    Call("POST", "/model-versions/{version_id}/bring-back", Role.ADMIN),
]


@pytest.mark.parametrize(
    "call",
    CALLS + ACT_CALLS + COMPATIBILITY_CALLS + MODEL_FILES_CALLS + VERSION_CALLS,
    ids=lambda call: f"{call.method} {call.path}",
)
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    # Where the whole API is put together, the call with which targets fetch a file is added; it has tests of its own.
    fetch = ("GET", "/artifacts/{sha256}")
    assert {call[:2] for call in CALLS} == routes_of(router) - {fetch}
    assert {call[:2] for call in ACT_CALLS} == routes_of(acts_router)
    assert {call[:2] for call in COMPATIBILITY_CALLS} == routes_of(compatibility_router)
    assert {call[:2] for call in VERSION_CALLS} == routes_of(versions_router)
    assert {call[:2] for call in MODEL_FILES_CALLS} == routes_of(model_files_router)
