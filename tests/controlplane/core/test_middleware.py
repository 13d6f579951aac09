"""What every request passes before it is answered."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory

from controlplane.core.middleware import WATCHED_PATHS, compress, ignore_odd_session_cookies


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


PAGE = b"<!doctype html>" + b"<p>the same again</p>" * 100


def answered(response: Any, path: str = "/overview/", takes: str = "gzip, br") -> Any:
    request = RequestFactory().get(path, headers={"accept-encoding": takes})
    return compress(lambda _request: response)(request)


def test_a_page_is_compressed_for_a_browser_that_takes_it():
    response = answered(HttpResponse(PAGE))
    assert response["Content-Encoding"] == "gzip"
    assert gzip.decompress(response.content) == PAGE
    assert len(response.content) < len(PAGE) / 4
    assert "Accept-Encoding" in response["Vary"]


async def test_it_is_so_on_the_event_loop_too():
    async def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(PAGE)

    request = RequestFactory().get("/overview/", headers={"accept-encoding": "gzip"})
    answer: Any = compress(view)(request)
    response = await answer
    assert gzip.decompress(response.content) == PAGE


@pytest.mark.parametrize(
    ("response", "path", "takes"),
    [
        (HttpResponse(PAGE), "/overview/", "identity"),
        # A tag that became weak would no longer be taken as If-Match.
        (HttpResponse(PAGE), "/api/v1/tenants", "gzip"),
        (HttpResponse(PAGE, headers={"ETag": '"1"'}), "/overview/", "gzip"),
        # Events must not wait for each other.
        (StreamingHttpResponse([PAGE]), "/live", "gzip"),
    ],
)
def test_what_is_not_compressed(response, path, takes):
    assert "Content-Encoding" not in answered(response, path, takes)
