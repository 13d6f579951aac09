"""Prometheus' HTTP API under /prometheus/api/v1/, so that Grafana and promtool take this for a Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from django.core.exceptions import BadRequest, RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.views.decorators.csrf import csrf_exempt

from controlplane.core.errors import Refused
from controlplane.core.security import metrics_reader
from controlplane.telemetry import embedded, query
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.own_metadata import own_among
from controlplane.telemetry.parameters import Parameters
from controlplane.telemetry.promql.errors import QueryError
from controlplane.telemetry.promql.values import Labels, Windows
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS
from controlplane.telemetry.results import instant_json, limited, range_json
from controlplane.telemetry.store.metadata import kept
from wire import PROTOCOL
from wire.write_body import METRIC_NAME

log = logging.getLogger(__name__)

_View = Callable[..., HttpResponse]
_JSON = "application/json"
# How VictoriaMetrics calls the same JSON where it holds raw samples, the answer to a range selector.
_VICTORIA_RAW = "application/stream+json"
# In Prometheus' words.
_TRUNCATED = "results truncated due to limit"
T = TypeVar("T")


class Found(NamedTuple):
    """`data` of an answer, and whether there would be more of it without the caller's limit."""

    data: Any
    truncated: bool = False

    def body(self) -> dict[str, Any]:
        return {"status": "success", "data": self.data, **({"warnings": [_TRUNCATED]} if self.truncated else {})}


def answering(path: str | None, *methods: str) -> Callable[[Callable[..., Found]], _View]:
    """A view of what its function finds, asked of the external server's `path` where there is such a server.

    Without a path it is ours alone.
    """

    def decorate(view: Callable[..., Found]) -> _View:
        # Scripts with tokens call it; a browser's session is checked in `metrics_reader`.
        @csrf_exempt
        @wraps(view)
        def answer(request: HttpRequest, **arguments: str) -> HttpResponse:
            try:
                if request.method not in methods:
                    return _error(HTTPStatus.METHOD_NOT_ALLOWED, "bad_data", f"use {' or '.join(methods)}")
                metrics_reader(request)
                parameters = Parameters(request, int(time.time() * 1000))
                if path is not None and rows.PROMETHEUS_URL.read():
                    return _passed_on(_path(path, arguments), parameters, request.method)
                return _json(view(parameters, **arguments).body())
            except QueryError as error:
                return _error(error.status, error.error_type, str(error))
            except Refused as refused:
                return _error(refused.status, refused.code, refused.detail)
            except (RequestDataTooBig, TooManyFieldsSent):
                return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "bad_data", "the form is too large")
            except (BadRequest, MultiPartParserError) as error:
                return _error(HTTPStatus.BAD_REQUEST, "bad_data", f"the form cannot be read: {error}")

        return answer

    return decorate


@answering("query", "GET", "POST")
def instant_query(parameters: Parameters) -> Found:
    at_ms, limit = parameters.time_ms("time", parameters.now_ms), parameters.limit()
    promql, look_back_ms = parameters.query(), parameters.look_back_ms()
    with embedded.turn(seconds=parameters.timeout_seconds()) as turn:
        value = embedded.instant(turn, promql, at_ms, look_back_ms=look_back_ms)
        value, truncated = limited(value, limit, ordered=isinstance(value, Windows))
        return Found(msgspec.Raw(instant_json(value, at_ms)), truncated)


@answering("query_range", "GET", "POST")
def range_query(parameters: Parameters) -> Found:
    end_ms = parameters.time_ms("end")
    times_ms = embedded.steps(parameters.time_ms("start"), end_ms, parameters.step_ms())
    promql, look_back_ms, limit = parameters.query(), parameters.look_back_ms(), parameters.limit()
    with embedded.turn(seconds=parameters.timeout_seconds()) as turn:
        value = embedded.ranged(turn, promql, times_ms, end_ms, look_back_ms=look_back_ms)
        first, truncated = limited(value, limit, ordered=True)
        return Found(msgspec.Raw(range_json(embedded.with_steps(first), times_ms)), truncated)


@answering("series", "GET", "POST")
def series(parameters: Parameters) -> Found:
    return _first(_series(parameters, needed=True), parameters)


@answering("labels", "GET", "POST")
def label_names(parameters: Parameters) -> Found:
    if parameters.given("match[]"):
        return _first(sorted({name for labels in _series(parameters) for name in labels}), parameters)
    with embedded.turn() as turn:
        return _first(turn.reader.label_names(), parameters)


@answering("label/{name}/values", "GET")
def label_values(parameters: Parameters, name: str) -> Found:
    if parameters.given("match[]"):
        return _first(sorted({labels[name] for labels in _series(parameters) if name in labels}), parameters)
    with embedded.turn() as turn:
        return _first(turn.reader.label_values(name), parameters)


@answering("metadata", "GET")
def metadata(parameters: Parameters) -> Found:
    """What writers said last of each family, and what is known of ours: one entry where Prometheus may have several."""
    limit, wanted = parameters.whole_number("limit", -1), parameters.text("metric")
    # Checked alone: no family has more than one.
    parameters.whole_number("limit_per_metric", -1)
    with embedded.turn() as turn:
        own = own_among(set(turn.reader.label_values(METRIC_NAME)))
        known = {each.family: each for each in (*own, *kept(store_path()))}
    chosen = [each for family, each in sorted(known.items()) if wanted in ("", family)]
    first = chosen if limit < 0 else chosen[:limit]
    return Found({each.family: [{"type": each.kind, "help": each.help, "unit": each.unit}] for each in first})


@answering("status/buildinfo", "GET")
def build_information(parameters: Parameters) -> Found:
    """Clients choose features by this: what is answered is what Prometheus 3.0 answers, or refused."""
    unknown_here = dict.fromkeys(("branch", "buildUser", "buildDate", "goVersion"), "")
    return Found({"version": "3.0.0", "revision": f"headworks-{PROTOCOL}", **unknown_here})


def front(request: HttpRequest) -> HttpResponse:
    """What the Python client asks to see whether there is a Prometheus that it may read."""
    try:
        metrics_reader(request)
    except Refused as refused:
        return _error(refused.status, refused.code, refused.detail)
    return HttpResponse("Prometheus' HTTP API is under api/v1/ here.\n", content_type="text/plain; charset=utf-8")


@csrf_exempt
def unknown(request: HttpRequest, rest: str) -> HttpResponse:
    return _error(HTTPStatus.NOT_FOUND, "not_found", f"there is no {rest!r} here; docs/metrics.md lists what there is")


def _path(form: str, arguments: Mapping[str, str]) -> str:
    """Of an address: whatever a caller names stays one part of it."""
    return form.format_map({name: quote(value, safe="") for name, value in arguments.items()})


def _passed_on(path: str, parameters: Parameters, method: str) -> HttpResponse:
    answer = query.ask(path, parameters.all(), method=method)
    kind = answer.headers.get("content-type", _JSON)
    if not kind.startswith((_JSON, _VICTORIA_RAW)):
        log.error("the metrics server answered %s with %s of type %s", path, answer.status, kind)
        message = f"the metrics server answered {answer.status} without JSON"
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message)
    return HttpResponse(answer.body, status=answer.status, content_type=_JSON)


def _series(parameters: Parameters, *, needed: bool = False) -> list[Labels]:
    selectors, span = parameters.selectors(needed=needed), parameters.span_ms()
    with embedded.turn() as turn:
        return turn.reader.series(selectors, *span, turn.budget.touch)


def _first(found: list[T], parameters: Parameters) -> Found:
    limit = parameters.limit() or len(found)
    return Found(found[:limit], len(found) > limit)


def _json(body: dict[str, Any], status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(body), status=status, content_type=_JSON)


def _error(status: int, kind: str, message: str) -> HttpResponse:
    response = _json({"status": "error", "errorType": kind, "error": message}, status)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
