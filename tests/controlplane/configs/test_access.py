"""Who may call what: a person who may, a viewer, an outsider, on every route of the configuration and its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.configs.heads import Heads
from tests.controlplane.conftest import Rest

# Method, path, body, status for a viewer, status for an operator, status for an admin.
ROUTES = [
    ("GET", "/config/convergence", None, 200, 200, 200),
    ("GET", "/config", None, 200, 200, 200),
    ("GET", "/config?revision=1", None, 200, 200, 200),
    ("PUT", "/config", {"format": "headworks/1"}, 403, 403, 200),
    ("GET", "/config/stages", None, 200, 200, 200),
    ("GET", "/config/stages/1", None, 404, 404, 404),
    ("POST", "/config/stages", {}, 403, 403, 422),
    ("POST", "/config/stages/1/promote", None, 403, 403, 404),
    ("POST", "/config/stages/1/take-back", None, 403, 404, 404),
    ("GET", "/capacity", None, 200, 200, 200),
    ("GET", "/revisions", None, 200, 200, 200),
    ("GET", "/revisions/1", None, 200, 200, 200),
    ("GET", "/revisions/1/content", None, 403, 403, 200),
    ("GET", "/revisions/1/diff?to=1", None, 200, 200, 200),
    ("POST", "/revisions/1/rollback", None, 403, 200, 200),
    ("GET", "/targets", None, 200, 200, 200),
    ("POST", "/targets/join-tokens", {"kind": "gateway"}, 403, 403, 201),
    ("POST", "/targets/1/revoke", None, 403, 403, 404),
]
# What targets call; people may not, whatever their role.
TARGET_ROUTES = [
    ("GET", "/config/snapshot"),
    ("POST", "/config/ack"),
    ("POST", "/nodes/report"),
    ("POST", "/targets/rotate"),
]


@pytest.mark.parametrize(("method", "path", "body", "viewer_status", "operator_status", "admin_status"), ROUTES)
def test_each_route_asks_for_its_role(
    newest: Callable[[], Heads],
    viewer: Rest,
    operator: Rest,
    admin: Rest,
    outsider: Rest,
    method: str,
    path: str,
    body: Any,
    viewer_status: int,
    operator_status: int,
    admin_status: int,
) -> None:
    newest()
    expected = ((outsider, 401), (viewer, viewer_status), (operator, operator_status), (admin, admin_status))
    for caller, status in expected:
        answer = caller.call(method, path, body)
        assert answer.status_code == status, answer.content


@pytest.mark.parametrize(("method", "path"), TARGET_ROUTES)
def test_a_persons_token_is_no_targets_token(admin: Rest, outsider: Rest, method: str, path: str) -> None:
    for caller in (admin, outsider):
        answer = caller.call(method, path, {})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("path", [path for method, path, *_ in ROUTES if method == "GET"])
def test_a_targets_token_is_no_persons(target_of: Any, newest: Callable[[], Heads], path: str) -> None:
    newest()
    assert target_of().get(path).status_code == 401


def test_schemas_are_open_to_all(db: None, outsider: Rest) -> None:
    names = outsider.get("/schema").json()["items"]
    assert {"gateway-snapshot", "stream-patch", "ack"} <= set(names)
    for name in names:
        assert outsider.get(f"/schema/{name}").json()["$schema"].startswith("https://json-schema.org/")
    assert outsider.get("/schema/absent").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/revisions/0", 422),
        ("/revisions/abc", 422),
        ("/revisions/9", 404),
        ("/config?revision=0", 422),
        ("/config?revision=9", 404),
        ("/config?format=xml", 422),
        ("/revisions/1/diff", 422),
        ("/revisions/1/diff?to=9", 404),
        ("/revisions?limit=0", 422),
        ("/revisions?after=-1", 422),
    ],
)
def test_a_wrong_number_is_named(newest: Callable[[], Heads], viewer: Rest, path: str, status: int) -> None:
    newest()
    answer = viewer.get(path)
    assert answer.status_code == status
    assert answer["content-type"] == "application/problem+json"


def test_revisions_are_listed_newest_first_page_by_page(admin: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    for limit in (1, 2, 3):
        admin.post("/tenants", {"name": f"t-{limit}", "tpm_limit": limit})
        newest()
    first = admin.get("/revisions?limit=3").json()
    assert [item["number"] for item in first["items"]] == [4, 3, 2]
    rest = admin.get(f"/revisions?limit=3&after={first['next']}").json()
    assert ([item["number"] for item in rest["items"]], rest["next"]) == ([1], None)
    assert first["items"][0]["changed"] == [{"section": "tenants", "key": "t-3", "removed": False}]
    assert admin.get("/revisions/4/diff?to=2").json()["patch"] == {"tenants": {"t-2": None, "t-3": None}}
