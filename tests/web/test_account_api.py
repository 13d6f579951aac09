"""REST of one's own account: the log-ins that are open, and one's own password."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from controlplane.core.models import AuditEntry, Role, User
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import token_of

PASSWORD, OTHER = "correct horse battery", "another horse entirely"


@pytest.fixture(autouse=True)
def _quick_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def omar(db: None) -> User:
    return User.objects.create_user("omar", password=PASSWORD, role=Role.OPERATOR, tenants=["acme"])


@pytest.mark.parametrize(("method", "path"), [("GET", "/me/log-ins"), ("POST", "/me/password")])
def test_strangers_are_told_nothing(method: str, path: str, db: None) -> None:
    assert Rest(None).call(method, path, {}).status_code == 401


def test_the_list_has_the_open_log_ins_of_the_caller_alone_and_no_key(omar: User) -> None:
    Client().force_login(omar)
    Client().force_login(User.objects.create(username="lin"))
    answer = token_of(omar).get("/me/log-ins")
    (each,) = answer.json()["items"]
    assert each.keys() == {"address", "begun_at", "last_page_at", "ends_at"}
    assert each["begun_at"] < each["ends_at"]
    assert not [key for key in Session.objects.values_list("session_key", flat=True) if key in answer.content.decode()]
    token_of(omar, name="second").post("/me/end-log-ins")
    assert token_of(omar, name="third").get("/me/log-ins").json()["items"] == []


def test_who_knows_the_password_changes_it_and_every_log_in_ends(omar: User) -> None:
    browser, script = Client(), token_of(omar)
    browser.force_login(omar)
    answer = script.post("/me/password", {"current": PASSWORD, "password": OTHER})
    assert answer.status_code == 200, answer.json()
    assert Client().login(username="omar", password=OTHER)
    assert browser.get("/account/").status_code == 302
    assert script.get("/me").status_code == 200
    assert not {PASSWORD, OTHER} & set(str(list(AuditEntry.objects.values_list("before", "after"))).split("'"))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"current": "a guess of mine"}, "/current"),
        ({"password": "short"}, "/password"),
        ({"again": OTHER}, "/again"),
        ({"current": None}, "/current"),
    ],
)
def test_a_password_that_is_not_changed_says_why(change: dict[str, Any], path: str, omar: User) -> None:
    answer = token_of(omar).post("/me/password", {"current": PASSWORD, "password": OTHER, **change})
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert Client().login(username="omar", password=PASSWORD)


def test_the_provider_s_password_is_not_changed_here(db: None) -> None:
    of_provider = {"oidc_issuer": "https://id.example", "oidc_subject": "1", "last_login": timezone.now()}
    user = User.objects.create(username="grace", **of_provider)
    answer = token_of(user).post("/me/password", {"current": PASSWORD, "password": OTHER})
    assert [problem["rule"] for problem in answer.json()["problems"]] == ["oidc"]


def test_guesses_have_the_bound_of_the_log_in_and_then_say_how_long_to_wait(
    omar: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.web.throttle.FAILURES_MAX", 2)
    script = token_of(omar)
    for _ in range(2):
        script.post("/me/password", {"current": "a guess of mine", "password": OTHER})
    answer = script.post("/me/password", {"current": PASSWORD, "password": OTHER})
    assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
    assert 0 < int(answer.headers["Retry-After"]) <= 15 * 60
    assert Client().login(username="omar", password=PASSWORD)
