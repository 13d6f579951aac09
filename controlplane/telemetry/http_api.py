"""Prometheus' HTTP API under /prometheus/api/v1/, so that Grafana and promtool take this for a Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from controlplane import settings_rows as rows
from controlplane.core.errors import Refused
from controlplane.core.security import caller_of
from controlplane.telemetry import embedded, query, receiver
from controlplane.telemetry.parameters import Parameters
from controlplane.telemetry.promql.errors import QueryError
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS
from controlplane.telemetry.results import instant_json, range_json
from wire import PROTOCOL

log = logging.getLogger(__name__)

_View = Callable[..., HttpResponse]
_JSON = "application/json"
# How VictoriaMetrics calls the same JSON where it holds raw samples, the answer to a range selector.
_VICTORIA_RAW = "application/stream+json"
T = TypeVar("T")

# Ours are called by senders with tokens; a browser's session is checked in `caller_of`.
write = csrf_exempt(receiver.receive)


def _answering(path: str, *methods: str) -> Callable[[Callable[..., Any]], _View]:
    """A view whose function gives `data`, asked of the external server's `path` where there is one."""

    def decorate(view: Callable[..., Any]) -> _View:
        @csrf_exempt
        @wraps(view)
        def answer(request: HttpRequest, **arguments: str) -> HttpResponse:
            try:
                if request.method not in methods:
                    return _error(HTTPStatus.METHOD_NOT_ALLOWED, "bad_data", f"use {' or '.join(methods)}")
                caller_of(request)
                parameters = Parameters(request, int(time.time() * 1000))
                if rows.PROMETHEUS_URL.read():
                    return _passed_on(path.format(**arguments), parameters, request.method)
                return _json({"status": "success", "data": view(parameters, **arguments)})
            except QueryError as error:
                return _error(error.status, error.error_type, str(error))
            except Refused as refused:
                return _error(refused.status, refused.code, refused.detail)
            except (RequestDataTooBig, TooManyFieldsSent):
                return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "bad_data", "the form is too large")

        return answer

    return decorate


@_answering("query", "GET", "POST")
def instant_query(parameters: Parameters) -> Any:
    at_ms = parameters.time_ms("time", int(time.time() * 1000))
    seconds, look_back_ms = parameters.timeout_seconds(), parameters.look_back_ms()
    value = embedded.instant(parameters.query(), at_ms, seconds=seconds, look_back_ms=look_back_ms)
    return msgspec.Raw(instant_json(value, at_ms))


@_answering("query_range", "GET", "POST")
def range_query(parameters: Parameters) -> Any:
    times_ms = embedded.steps(parameters.time_ms("start"), parameters.time_ms("end"), parameters.step_ms())
    seconds, look_back_ms = parameters.timeout_seconds(), parameters.look_back_ms()
    value = embedded.ranged(parameters.query(), times_ms, seconds=seconds, look_back_ms=look_back_ms)
    return msgspec.Raw(range_json(value, times_ms))


@_answering("series", "GET", "POST")
def series(parameters: Parameters) -> Any:
    selectors, span = parameters.selectors(needed=True), parameters.span_ms()
    with embedded.reading() as reader:
        return _limited(reader.series(selectors, *span), parameters)


@_answering("labels", "GET", "POST")
def label_names(parameters: Parameters) -> Any:
    selectors, span = parameters.selectors(needed=False), parameters.span_ms()
    with embedded.reading() as reader:
        if not selectors:
            return _limited(reader.label_names(), parameters)
        return _limited(sorted({name for labels in reader.series(selectors, *span) for name in labels}), parameters)


@_answering("label/{name}/values", "GET")
def label_values(parameters: Parameters, name: str) -> Any:
    selectors, span = parameters.selectors(needed=False), parameters.span_ms()
    with embedded.reading() as reader:
        if not selectors:
            return _limited(reader.label_values(name), parameters)
        found = {labels[name] for labels in reader.series(selectors, *span) if name in labels}
        return _limited(sorted(found), parameters)


@_answering("status/buildinfo", "GET")
def build_information(parameters: Parameters) -> Any:
    """Clients choose features by this: what is answered is what Prometheus 3.0 answers, or refused."""
    unknown_here = dict.fromkeys(("branch", "buildUser", "buildDate", "goVersion"), "")
    return {"version": "3.0.0", "revision": f"headworks-{PROTOCOL}", **unknown_here}


def unknown(request: HttpRequest, rest: str) -> HttpResponse:
    return _error(HTTPStatus.NOT_FOUND, "not_found", f"there is no {rest!r} here; docs/metrics.md lists what there is")


def _passed_on(path: str, parameters: Parameters, method: str) -> HttpResponse:
    answer = query.ask(path, parameters.all(), method=method)
    kind = answer.headers.get("content-type", _JSON)
    if not kind.startswith((_JSON, _VICTORIA_RAW)):
        log.error("the metrics server answered %s with %s of type %s", path, answer.status, kind)
        message = f"the metrics server answered {answer.status} without JSON"
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message)
    return HttpResponse(answer.body, status=answer.status, content_type=_JSON)


def _limited(found: list[T], parameters: Parameters) -> list[T]:
    limit = parameters.limit()
    return found[:limit] if limit else found


def _json(body: dict[str, Any], status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(body), status=status, content_type=_JSON)


def _error(status: int, kind: str, message: str) -> HttpResponse:
    response = _json({"status": "error", "errorType": kind, "error": message}, status)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
