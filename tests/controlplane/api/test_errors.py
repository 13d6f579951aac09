"""How refusals look, whatever part of the API makes them."""

from __future__ import annotations

from typing import Any

import pytest

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
