"""Counts requests by route and status for /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from controlplane.configs.metrics import REQUESTS

_Answer = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


@sync_and_async_middleware
def count_requests(get_response: _Answer) -> _Answer:
    """Labels come from the site's own patterns, never from what a client sends."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _count(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _count(request, get_response(request))  # type: ignore[arg-type]

    return answer


def _count(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    route = request.resolver_match.route if request.resolver_match else "unknown"
    method = request.method if request.method in _METHODS else "unknown"
    REQUESTS.labels(route, method, str(response.status_code)).inc()
    return response
