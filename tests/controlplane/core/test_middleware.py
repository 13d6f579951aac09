"""What every request passes before it is answered."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from controlplane.core.middleware import WATCHED_PATHS, ignore_odd_session_cookies


def seen_cookie(value: str) -> str | None:
    """The session cookie that reaches what is behind the middleware."""
    seen: list[str | None] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        return HttpResponse()

    request = RequestFactory().get("/")
    request.COOKIES[settings.SESSION_COOKIE_NAME] = value
    ignore_odd_session_cookies(view)(request)
    return seen[0]


def test_a_session_cookie_as_django_makes_it_passes():
    assert seen_cookie("k3" * 16) == "k3" * 16


@pytest.mark.parametrize("value", ["k3" * 16 + "\0", "short", "k" * 41, "K3" * 16, "k3" * 16 + "\n", "", "ü" * 32])
def test_any_other_is_dropped(value):
    assert seen_cookie(value) is None


@pytest.mark.django_db
def test_an_odd_session_cookie_is_no_log_in_and_no_failure():
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = "k3\0" * 11
    assert client.get("/").status_code == 302


@pytest.mark.django_db
def test_what_watches_the_process_may_call_it_by_any_host_and_nobody_else_may(settings):
    settings.ALLOWED_HOSTS = ["headworks.example"]
    # The page of a refusal names its style sheet, which nothing has collected here.
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    client = Client(headers={"host": "10.0.0.5:8600"})
    statuses = {path: client.get(path).status_code for path in WATCHED_PATHS}
    assert {path for path, status in statuses.items() if status == 400} == set()
    assert client.get("/").status_code == 400
    assert client.get("/api/v1/tenants").status_code == 400
