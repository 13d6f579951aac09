"""What the OpenAPI page says of headers, and that every call which it names does so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.configs import publisher
from controlplane.configs.document import FORMAT
from tests.controlplane.conftest import Rest

EDITS = {"patch", "put", "delete"}
MODEL = {"name": "org/m-1", "max_context_tokens": 8192}
# What each is made from, in the order of what they refer to: path, body, and how a row's address follows from the item.
NOUNS: list[tuple[str, dict[str, Any], str]] = [
    ("/tenants", {"name": "acme", "tpm_limit": 60_000, "weight": 2}, "/tenants/acme"),
    ("/tenants/acme/keys", {"label": "app", "expires_at": "2999-01-01T00:00:00.123456Z"}, "/keys/{id}"),
    ("/priority-classes", {"name": "chat", "rank": 0, "queue_ttl_ms": 500}, "/priority-classes/chat"),
    ("/session-limits", {"name": "agents", "max_iterations": 50}, "/session-limits/agents"),
    ("/cache-policies", {"name": "faq", "exact": {"ttl_ms": 60_000}}, "/cache-policies/faq"),
    ("/models", MODEL, "/models/org/m-1"),
    ("/aliases", {"name": "small", "model": "org/m-1"}, "/aliases/small"),
    ("/model-versions", {"family": "m", "version": "1", "model": "org/m-1"}, "/model-versions/{id}"),
    ("/pools", {"name": "short", "model": "org/m-1"}, "/pools/short"),
    ("/nodes", {"name": "n1"}, "/nodes/n1"),
    ("/engines", {"name": "e1", "url": "http://10.0.0.1:8000", "pool": "short", "served_model": "m"}, "/engines/e1"),
    ("/routes", {"name": "all", "pools": {"short": 1000}}, "/routes/all"),
    (
        "/overrides",
        {"subject_kind": "pool", "subject": "short", "state": "open", "expires_in_seconds": 600},
        "/overrides/{name}",
    ),
    ("/users", {"username": "ada", "password": "correct horse battery", "role": "viewer"}, "/users/ada"),
    ("/receivers", {"name": "oncall", "url": "https://hooks.example.com/x"}, "/receivers/oncall"),
    ("/metric-writers", {"name": "east", "matchers": {"cluster": "east"}}, "/metric-writers/east"),
    (
        "/compatibility-rules",
        {"name": "one", "rule": {"every": ["version"]}, "reason": "it matters"},
        "/compatibility-rules/one",
    ),
    (
        "/lever-policies",
        {"name": "kv", "detector": "kv_exhausted", "lever": "kv_admit", "min_confidence_permille": 900},
        "/lever-policies/kv",
    ),
    ("/alert-routes", {"name": "all"}, "/alert-routes/all"),
    ("/inhibitions", {"name": "one", "source_matchers": ["a=b"], "target_matchers": ["c=d"]}, "/inhibitions/one"),
    (
        "/silences",
        {
            "name": "one",
            "matchers": ["a=b"],
            "ends_at": "2099-01-01T00:00:00Z",
            "starts_at": "2098-12-01T00:00:00Z",
            "comment": "a test",
        },
        "/silences/one",
    ),
    (
        "/maintenance-windows",
        {"name": "one", "matchers": ["a=b"], "days": ["sun"], "starts": "01:00", "ends": "02:00"},
        "/maintenance-windows/one",
    ),
    ("/rules", {"name": "up", "expr": "up == 0", "severity": "warning"}, "/rules/up"),
]


@pytest.fixture
def operations(db: None, outsider: Rest) -> list[tuple[str, str, dict[str, Any]]]:
    paths = outsider.get("/openapi.json").json()["paths"]
    return [
        (method, path.removeprefix("/api/v1"), operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]


def parameters(operation: dict[str, Any], place: str) -> set[str]:
    return {given["name"] for given in operation["parameters"] if given["in"] == place}


# A whole document is read before anything is compared with it.
READABLE = {"/config": {"format": FORMAT}}


def writes(operations: list[tuple[str, str, dict[str, Any]]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All that takes a reason, but for reads that only filter by one."""
    for method, path, operation in operations:
        if method != "get" and "reason" in parameters(operation, "query"):
            yield method, path, operation


def test_every_write_names_its_headers(operations: Any) -> None:
    found = list(writes(operations))
    assert {("post", "/tenants"), ("patch", "/cordon-policy"), ("put", "/recording-rules")} <= {
        (method, path) for method, path, _ in found
    }
    for method, path, operation in found:
        headers = parameters(operation, "header")
        assert "Idempotency-Key" in headers, (method, path)
        assert method not in EDITS or "If-Match" in headers, (method, path)
        for status, response in operation["responses"].items():
            if status.startswith("2"):
                assert {"ETag", "Idempotency-Replayed"} <= set(response["headers"]), (method, path)
    for method, path, operation in operations:
        if method == "get":
            assert "Idempotency-Key" not in parameters(operation, "header"), path
        assert ("412" in operation["responses"]) == bool(
            {"If-Match", "If-None-Match"} & parameters(operation, "header")
        )


def test_every_call_compares_as_it_says(operations: Any, admin: Rest) -> None:
    """Without a row there is none to compare; a call that compares none refuses the header."""
    compared = set()
    for method, path, operation in writes(operations):
        body = READABLE.get(path, {})
        answer = admin.call(method.upper(), re.sub(r"{\w+}", "1", path), body, **{"If-Match": '"another"'})
        if "If-Match" in parameters(operation, "header"):
            compared.add((method, path))
            assert answer.status_code in {404, 412}, (method, path, answer.content)
        else:
            assert answer.status_code in {400, 412, 422}, (method, path, answer.content)
    assert {("post", "/keys/{key_id}/rotate"), ("put", "/recording-rules"), ("delete", "/tenants/{name}")} <= compared


def test_every_write_looks_at_its_key(operations: Any, admin: Rest) -> None:
    others = set()
    for method, path, operation in writes(operations):
        query = "".join(f"&{name}=1" for name in sorted(parameters(operation, "query") & {"kind", "name"}))
        address = f"{re.sub(r'{[^}]+}', '1', path)}?reason=a+test{query}"
        answer = admin.call(method.upper(), address, READABLE.get(path, {}), **{"Idempotency-Key": "not a key"})
        if answer.status_code == 422:
            others.add(path)
            continue
        assert answer.status_code == 400, (method, path, answer.content)
        assert answer.json()["problems"][0]["path"] == "/Idempotency-Key"
    # What these are given here is refused before they come to write.
    assert others == {"/artifacts", "/targets/join-tokens", "/deliveries/{delivery_id}/resend", "/me/password"}


def test_what_a_write_answers_carries_the_tag_that_a_read_answers(operations: Any, admin: Rest) -> None:
    covered = set()
    for path, body, address in NOUNS:
        made = admin.post(path, body)
        assert made.status_code == 201, made.content
        one = address.format(**made.json()["item"])
        assert admin.get(one)["ETag"] == made["ETag"], one
        covered.add(re.sub(r"/[^/]+(/m-1)?$", "", one, count=1))
    tagged = {
        path for method, path, operation in operations if method == "get" and "headers" in operation["responses"]["200"]
    }
    # Tried where they are made: files, acts, incidents, deliveries, stages, rollouts, what-ifs and repairs.
    elsewhere = {
        "/artifacts/{sha256}", "/acts/{act_id}", "/incidents/{incident_id}", "/deliveries/{delivery_id}",
        "/config/stages/{stage_id}", "/batches/{batch_id}", "/rollouts/{rollout_id}", "/what-if/{run_id}",
        "/remediations/{remediation_id}", "/diagnosis/findings/{finding_id}",
        "/diagnosis/findings/{finding_id}/levers/{key}",
    }  # fmt: skip
    alone = {"/config", "/cordon-policy", "/remediation-policy", "/recording-rules", "/revisions/{number}"}
    assert {re.sub(r"/{\w+}$", "", path) for path in tagged - alone - elsewhere} == covered
    publisher.publish()
    for path in sorted(alone):
        assert admin.get(path.replace("{number}", "1"))["ETag"].startswith('"')


def test_each_row_is_edited_and_deleted_by_its_tag_alone(admin: Rest) -> None:
    made = [(address.format(**admin.post(path, body).json()["item"])) for path, body, address in NOUNS]
    for one in reversed(made):
        # People stay, for what they did.
        edit = ("PATCH", one, {"role": "operator"}) if one.startswith("/users/") else ("DELETE", one)
        tag = admin.get(one)["ETag"]
        assert admin.call(*edit, **{"If-Match": '"another"'}).status_code == 412, one
        assert admin.call(*edit, **{"If-Match": tag}).status_code == 200, one
