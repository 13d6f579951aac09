from __future__ import annotations

from typing import Any

import pytest
import yaml

from controlplane.core.models import AuditEntry, Role
from controlplane.telemetry.models import RecordingGroup, RecordingRule
from controlplane.telemetry.recording.api import router
from controlplane.telemetry.recording.builtin import builtin
from tests.controlplane.conftest import Rest
from tests.controlplane.core.access import routes_of

PATH = "/recording-rules"
RULES: dict[str, Any] = {
    "groups": [
        {
            "name": "fleet",
            "interval": "30s",
            "rules": [
                {"record": "pool:up:sum", "expr": "sum by (pool) (up)", "labels": {"tier": "1"}},
                {"record": "node:up:sum", "expr": "sum by (node) (up)"},
            ],
        },
        {"name": "later", "rules": []},
    ]
}
pytestmark = pytest.mark.django_db


def put_yaml(caller: Rest, text: str, content_type: str = "text/yaml", query: str = "") -> Any:
    headers = {"Content-Type": content_type}
    path = f"/api/v1{PATH}?reason=a+test{query}"
    return caller.client.generic("PUT", path, text.encode(), content_type=content_type, headers=headers)


def test_the_built_in_rules_are_there_until_others_are_given(viewer, operator):
    assert viewer.get(PATH).json() == builtin()
    assert operator.put(PATH, RULES).json()["item"] == RULES
    assert viewer.get(PATH).json() == RULES
    assert viewer.get(f"{PATH}?built_in=true").json() == builtin()
    assert operator.delete(PATH).json()["item"] == builtin()
    assert viewer.get(PATH).json() == builtin()


@pytest.mark.parametrize("content_type", ["text/yaml", "application/yaml; charset=utf-8", "application/x-yaml"])
def test_rules_go_in_and_out_as_yaml(viewer, operator, content_type):
    assert put_yaml(operator, yaml.safe_dump(RULES), content_type).status_code == 200
    answer = viewer.get(PATH, Accept="text/yaml")
    assert answer["Content-Type"] == "text/yaml; charset=utf-8"
    assert yaml.safe_load(answer.content) == RULES
    assert put_yaml(operator, answer.content.decode()).json()["item"] == RULES
    assert viewer.get(PATH, Accept="application/json").json() == RULES


def test_a_write_is_in_the_audit_and_one_that_changes_nothing_is_not(operator):
    for _ in range(2):
        assert operator.put(f"{PATH}?reason=own+rules", RULES).status_code == 200
    entry = AuditEntry.objects.get(noun="recording rules")
    assert (entry.reason, entry.before, entry.after) == ("own rules", builtin(), RULES)


def test_a_dry_run_keeps_nothing(operator, viewer):
    assert operator.put(f"{PATH}?reason=try&dry_run=true", RULES).json()["item"] == RULES
    assert viewer.get(PATH).json() == builtin()
    assert not RecordingGroup.objects.exists()
    assert not AuditEntry.objects.exists()


def test_every_problem_is_named_by_its_place_and_nothing_is_kept(operator, viewer):
    text = """
groups:
  - name: fleet
    interval: soon
    rules:
      - record: up
        expr: sum by (pool) (up)
      - record: pool:up:sum
        expr: sum by (pool (up)
      - alert: Down
        expr: up == 0
"""
    answer = put_yaml(operator, text)
    assert answer.status_code == 422
    assert {problem["path"] for problem in answer.json()["problems"]} == {
        "/groups/0/interval",
        "/groups/0/rules/0/record",
        "/groups/0/rules/1/expr",
        "/groups/0/rules/2/record",
        "/groups/0/rules/2/alert",
    }
    assert viewer.get(PATH).json() == builtin()


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "malformed"),
        (b'{"groups": [], "groups": []}', "application/json", 400, "malformed"),
        (b"[" * 100_000, "application/json", 400, "malformed"),
        (b"\xff", "application/json", 400, "malformed"),
        (b"groups: [", "text/yaml", 400, "malformed"),
        (b"groups:\n- &a {name: a, rules: []}\n- *a", "text/yaml", 400, "malformed"),
        (b"#" * 300_000, "text/yaml", 413, "too_large"),
        (b"groups: []", "text/plain", 415, "unsupported_form"),
        (b"", "application/octet-stream", 415, "unsupported_form"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(operator, body, content_type, status, code):
    answer = operator.client.generic("PUT", f"/api/v1{PATH}?reason=a+test", body, content_type=content_type)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not RecordingGroup.objects.exists()


def test_no_rules_at_all_may_be_given(operator, viewer):
    assert operator.put(PATH, {"groups": []}).status_code == 200
    assert viewer.get(PATH).json() == {"groups": []}


def test_rules_of_other_groups_and_orders_are_the_same_rows(operator, viewer):
    operator.put(PATH, RULES)
    before = dict(RecordingRule.objects.values_list("record", "pk"))
    first, second = RULES["groups"][0]["rules"]
    moved = {"groups": [{"name": "later", "rules": [second]}, {"name": "fleet", "rules": [{**first, "expr": "up"}]}]}
    assert operator.put(PATH, moved).status_code == 200
    assert viewer.get(PATH).json() == moved
    assert dict(RecordingRule.objects.values_list("record", "pk")) == before


def test_what_only_an_external_server_evaluates_may_be_set_where_there_is_one(operator, monkeypatch):
    rules = {"groups": [{"name": "a", "rules": [{"record": "a:b:c", "expr": "limitk(1, up)"}]}]}
    assert operator.put(PATH, rules).status_code == 422
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", "http://127.0.0.1:1")
    assert operator.put(PATH, rules).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "needs", "body"),
    [
        ("GET", PATH, Role.VIEWER, None),
        ("PUT", PATH, Role.OPERATOR, RULES),
        ("DELETE", PATH, Role.OPERATOR, None),
        ("GET", f"{PATH}/state", Role.VIEWER, None),
    ],
)
def test_a_route_takes_its_role_and_no_lesser(rest_of, method, path, needs, body):
    assert rest_of(None).call(method, path, body).status_code == 401
    for role in Role:
        status = rest_of(role).call(method, path, body).status_code
        assert status == (200 if role.covers(needs) else 403), role
    assert (method, path) in routes_of(router)


def test_the_table_has_every_route():
    assert len(routes_of(router)) == 4


def test_a_write_needs_a_reason(operator):
    answer = operator.put(f"{PATH}?reason=", RULES)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "/reason"
