from __future__ import annotations

import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from django.test import Client

from tests.controlplane.conftest import Rest


def test_the_openapi_page_has_local_files_and_no_inline_script(db: None, settings: Any) -> None:
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    answer = Client().get("/api/v1/docs")
    page = answer.content.decode()
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert not re.findall(r"https?://", page)
    assert not re.findall(r"<style|\son\w+=|style=", page)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    for attributes, body in scripts:
        assert 'type="application/json"' in attributes or not body.strip()
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert address.startswith("/static/")


def test_the_schema_describes_every_call_once(db: None, outsider: Rest) -> None:
    schema = outsider.get("/openapi.json").json()
    paths = schema["paths"]
    assert "/api/v1/config/stream" in paths
    calls = [operation for methods in paths.values() for operation in methods.values()]
    names = [operation["operationId"] for operation in calls]
    assert len(names) == len(set(names))
    assert all(operation["summary"] for operation in calls)
    ack = paths["/api/v1/config/ack"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(ack["properties"]) == {"revision", "hash", "applied_at", "error"}
    assert "$ref" not in str(ack)
    assert {"get", "delete"} <= set(paths["/api/v1/artifacts/{sha256}"])


def test_every_call_declares_how_it_refuses_and_refusals_are_so(db: None, admin: Rest, outsider: Rest) -> None:
    schema = outsider.get("/openapi.json").json()
    problem = schema["components"]["schemas"]["Problem"]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            for status in ("4XX", "503"):
                content = operation["responses"][status]["content"]["application/problem+json"]
                assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, (method, path)
    jsonschema.Draft202012Validator.check_schema(problem)
    for answer in (
        outsider.get("/tenants"),
        admin.get("/tenants/none"),
        admin.post("/tenants", {"name": "t", "tpm_limit": -1, "weight": "x"}),
        admin.put("/tenants", {}),
    ):
        assert answer.status_code >= 400
        jsonschema.validate(answer.json(), problem)


@pytest.mark.parametrize(
    ("path", "status", "fields"),
    [
        ("/targets/enrol", "201", {"target_id", "token", "expires_at_ms"}),
        ("/targets/rotate", "200", {"target_id", "token", "expires_at_ms"}),
        ("/config/ack", "200", {"taken"}),
        ("/nodes/report", "200", {"taken", "unknown_engines", "unknown_acts"}),
    ],
)
def test_what_targets_are_answered_is_declared(
    db: None, outsider: Rest, path: str, status: str, fields: set[str]
) -> None:
    responses = outsider.get("/openapi.json").json()["paths"][f"/api/v1{path}"]["post"]["responses"]
    assert [known for known in responses if known.startswith("2")] == [status]
    schema = responses[status]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(schema["required"]) == fields


def test_calls_that_create_declare_it(db: None, outsider: Rest) -> None:
    paths = outsider.get("/openapi.json").json()["paths"]
    creating = [path for path, methods in paths.items() if "201" in methods.get("post", {}).get("responses", {})]
    for noun in ("tenants", "models", "pools", "nodes", "engines", "routes", "users", "api-tokens", "artifacts"):
        assert f"/api/v1/{noun}" in creating
    assert {"/api/v1/tenants/{name}/keys", "/api/v1/targets/join-tokens"} <= set(creating)
