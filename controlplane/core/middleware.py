"""What every request to Django passes: whose address it has, which host and cookie it may name, its answer's policy."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.middleware import common
from django.middleware.gzip import GZipMiddleware
from django.utils.decorators import sync_and_async_middleware

from controlplane import settings_rows as rows
from controlplane.core.client_address import client_address

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

# Called by address by what watches the process, whatever name people call it by.
WATCHED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
# What Django makes: 32 of these characters.
_SESSION_KEY = re.compile(r"[a-z0-9]{8,40}")

_Answer = Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]


@sync_and_async_middleware
def see_client_address(get_response: _Answer) -> _Answer:
    """Put the client's address in the place of that of the proxy in front (REMOTE_ADDR)."""
    trusted = rows.TRUSTED_PROXIES.read()

    def see(request: HttpRequest) -> None:
        peer, forwarded_for = request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", "")
        request.META["REMOTE_ADDR"] = client_address(peer, forwarded_for, trusted)

    return _preceded_by(see, get_response)


@sync_and_async_middleware
def ContentSecurityPolicy(get_response: _Answer) -> _Answer:
    """Put the policy on every answer that has none of its own."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponse:
            response: HttpResponse = await get_response(request)
            response.headers.setdefault("Content-Security-Policy", POLICY)
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)  # type: ignore[union-attr]
        return response  # type: ignore[return-value]

    return answer


@sync_and_async_middleware
def compress(get_response: _Answer) -> _Answer:
    """Compress pages, and what their scripts ask for, where the browser takes it.

    Not streams, whose events must not wait for each other, and not REST, whose tags (ETag) would become weak.
    """
    gzip = GZipMiddleware(lambda _request: HttpResponse())

    def is_worth_it(request: HttpRequest, response: HttpResponse) -> bool:
        return not response.streaming and not request.path.startswith("/api/") and not response.has_header("ETag")

    def packed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return gzip.process_response(request, response)  # type: ignore[return-value]

    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponse:
            response: HttpResponse = await get_response(request)
            if is_worth_it(request, response):
                # Not on the event loop: a page of a large fleet takes milliseconds.
                return await sync_to_async(packed, thread_sensitive=False)(request, response)
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)  # type: ignore[assignment]
        return packed(request, response) if is_worth_it(request, response) else response

    return answer


class CommonMiddleware(common.CommonMiddleware):
    """Django's, which refuses hosts that are not allowed, except where the process is watched."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        return None if request.path in WATCHED_PATHS else super().process_request(request)


@sync_and_async_middleware
def ignore_odd_session_cookies(get_response: _Answer) -> _Answer:
    """Drop a session cookie that Django cannot have set: PostgreSQL fails on a NUL that SQLite merely does not find."""

    def ignore(request: HttpRequest) -> None:
        if not _SESSION_KEY.fullmatch(request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")):
            request.COOKIES.pop(settings.SESSION_COOKIE_NAME, None)

    return _preceded_by(ignore, get_response)


def _preceded_by(look: Callable[[HttpRequest], None], get_response: _Answer) -> _Answer:
    """Answers as `get_response` does, which may be a coroutine function or not, after a look at the request."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponse:
            look(request)
            response: HttpResponse = await get_response(request)
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        look(request)
        return get_response(request)  # type: ignore[return-value]

    return answer
