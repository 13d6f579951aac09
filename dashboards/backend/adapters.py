"""A Django request and answer in the form that Dash asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dash.backends.base_server import RequestAdapter, ResponseAdapter
from django.http import HttpRequest, HttpResponse

_request: ContextVar[HttpRequest] = ContextVar("dash_request")


@contextmanager
def answering(request: HttpRequest) -> Iterator[None]:
    """Make `request` the one that Dash, a layout or a callback sees while the block runs."""
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)


def current_request() -> HttpRequest:
    """The request that is answered now. Raises LookupError outside of one."""
    return _request.get()


def has_request() -> bool:
    return _request.get(None) is not None


class DjangoRequestAdapter(RequestAdapter):
    """Looks at the request of the moment: Dash keeps the class, not an object a request."""

    @property
    def context(self) -> HttpRequest:
        return current_request()

    @property
    def root(self) -> str:
        return current_request().build_absolute_uri("/")

    @property
    def args(self) -> Any:
        return current_request().GET

    @property
    def is_json(self) -> bool:
        return current_request().content_type == "application/json"

    @property
    def cookies(self) -> dict[str, str]:
        return current_request().COOKIES

    @property
    def headers(self) -> Any:
        return current_request().headers

    @property
    def full_path(self) -> str:
        return current_request().get_full_path()

    @property
    def url(self) -> str:
        return current_request().build_absolute_uri()

    @property
    def remote_addr(self) -> str:
        return str(current_request().META.get("REMOTE_ADDR", ""))

    @property
    def origin(self) -> str | None:
        return current_request().headers.get("Origin")

    @property
    def path(self) -> str:
        return current_request().path

    def get_json(self) -> Any:
        """Raises ValueError for a body that is no JSON, RecursionError for one that is nested too deeply."""
        return json.loads(current_request().body)


class DjangoResponseAdapter(ResponseAdapter):
    """What a callback answers, with the headers and cookies that it set."""

    def set_response(self, **kwargs: Any) -> HttpResponse:
        response = HttpResponse(kwargs.get("data", ""), content_type="application/json")
        for name, values in self._headers.items():
            response[name] = ", ".join(values) if isinstance(values, list) else values
        for name, (value, options) in self._cookies.items():
            response.set_cookie(name, value, **options)
        return response
