from __future__ import annotations

import re
from typing import Any

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
