"""The outermost layer: counts requests for /metrics, and gives the API's refused methods their problem body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.utils.decorators import sync_and_async_middleware

from controlplane.api.not_found import API_PREFIX
from controlplane.configs.metrics import REQUESTS
from controlplane.core.errors import MethodNotAllowed, problem_response

_Answer = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


@sync_and_async_middleware
def count_requests(get_response: _Answer) -> _Answer:
    """Labels come from the site's own patterns, never from what a client sends."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _finished(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _finished(request, get_response(request))  # type: ignore[arg-type]

    return answer


def _finished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if isinstance(response, HttpResponseNotAllowed) and request.path.startswith(API_PREFIX):
        response = _not_allowed(response)
    route = request.resolver_match.route if request.resolver_match else "unknown"
    method = request.method if request.method in _METHODS else "unknown"
    REQUESTS.labels(route, method, str(response.status_code)).inc()
    return response


def _not_allowed(plain: HttpResponseNotAllowed) -> HttpResponse:
    """Ninja answers a line of text here, and has no place to say otherwise."""
    allowed = ", ".join(sorted(plain["Allow"].split(", ")))
    response = problem_response(MethodNotAllowed(f"this address takes {allowed}"))
    response["Allow"] = allowed
    return response
