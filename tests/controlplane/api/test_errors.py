"""How refusals look, whatever part of the API makes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client

from controlplane.core import users
from controlplane.core.models import AuditEntry
from tests.controlplane.conftest import Rest


@pytest.mark.parametrize(
    ("body", "status", "code", "path"),
    [
        (b"{not json", 400, "malformed", None),
        (b"", 422, "invalid", "/body"),
        (b"\xff", 400, "malformed", None),
        ({"name": "t", "tpm_limit": "60"}, 422, "invalid", "/tpm_limit"),
        ({"name": "t", "tpm_limit": -1}, 422, "invalid", "/tpm_limit"),
        ({"name": "t", "no_such": 1}, 422, "invalid", "/no_such"),
        ({"tpm_limit": 1}, 422, "invalid", "/name"),
        (b"[]", 422, "invalid", None),
    ],
)
def test_a_bad_body_is_a_problem_that_names_its_field(
    admin: Rest, body: Any, status: int, code: str, path: str | None
) -> None:
    answer = admin.post("/tenants", body)
    assert answer["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), answer.content
    if path is not None:
        assert [entry["path"] for entry in problem["problems"]] == [path]
        assert problem["problems"][0]["message"]
    assert not AuditEntry.objects.exists()


def test_a_write_without_a_reason_is_refused(admin: Rest) -> None:
    answer = admin.call("POST", "/tenants?reason=", {"name": "t"})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "/reason"


def test_a_missing_reason_is_told_where_it_belongs(admin: Rest) -> None:
    answer = admin.client.post("/api/v1/tenants", {"name": "t"}, content_type="application/json")
    assert answer.status_code == 422
    says = "query parameter `reason` is required: why, 1 to 500 characters"
    assert answer.json()["problems"] == [{"path": "/reason", "rule": "required", "message": says}]
    assert says in answer.json()["detail"]


def test_a_method_that_an_address_does_not_take_is_a_problem_that_names_those_it_does(admin: Rest) -> None:
    answer = admin.put("/tenants", {})
    assert (answer.status_code, answer["content-type"]) == (405, "application/problem+json")
    assert answer.json()["code"] == "method_not_allowed"
    assert answer["Allow"] == "GET, POST"
    assert "GET, POST" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body", [b'{"name": "t", "name": "u"}', b'{"name": "t", "priority_classes": [{"name": 1, "name": 2}]}']
)
def test_a_body_that_says_a_thing_twice_is_refused(admin: Rest, body: bytes) -> None:
    answer = admin.post("/tenants", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "'name' twice" in answer.json()["detail"]
    assert not AuditEntry.objects.exists()


def test_a_body_over_the_limit_is_refused(admin: Rest, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    answer = admin.post("/tenants", b"[" + b" " * 2000 + b"]")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_failure_inside_is_a_problem_without_its_details(
    admin: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(users, "describe", broken)
    answer = admin.get("/me")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert b"secret detail" not in answer.content
    assert "secret detail" in caplog.text


def test_an_unknown_call_is_answered_with_a_problem_body(viewer: Rest) -> None:
    answer = viewer.get("/tennants")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not_found"


@pytest.mark.parametrize("error", [OperationalError("disk full"), InterfaceError("the connection is closed")])
def test_trouble_with_the_database_is_answered_as_unavailable(
    admin: Rest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def away(*_: Any) -> None:
        raise error

    monkeypatch.setattr(users, "describe", away)
    answer = admin.get("/me")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) > 0
    assert str(error) not in answer.json()["detail"]
    assert str(error) in caplog.text


@pytest.mark.parametrize(("error", "status"), [(OperationalError("away"), 503), (RuntimeError("broken"), 500)])
@pytest.mark.parametrize("path", ["/log-in/", "/api/v1/me"])
def test_what_fails_before_any_view_is_answered_alike(
    monkeypatch: pytest.MonkeyPatch, settings: Any, path: str, error: Exception, status: int
) -> None:
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}

    def away(*_: Any) -> None:
        raise error

    monkeypatch.setattr("controlplane.core.middleware.CommonMiddleware.process_request", away)
    answer = Client(raise_request_exception=False).get(path)
    assert answer.status_code == status
    assert ("Retry-After" in answer) == (status == 503)
    assert answer["content-type"].startswith("application/problem+json" if path.startswith("/api") else "text/html")
