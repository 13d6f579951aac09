"""PromQL for pages, rules and detectors: the same text on the embedded store and on an external server.

Both calls raise `QueryError` (promql/errors.py): BadQuery, Unsupported, Unanswerable, TooMuch, TimedOut, Unavailable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from controlplane.telemetry import embedded
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TimedOut, Unanswerable, Unavailable
from controlplane.telemetry.promql.values import Scalar, Vector
from controlplane.telemetry.results import Sample, Series, samples_from, samples_of, series_from, series_of
from controlplane.telemetry.shared_reads import SharedReads
from controlplane.telemetry.upstream import Answer, UpstreamAway, call

__all__ = ["PAGE_SECONDS", "QueryError", "Sample", "Series", "SharedReads", "ask", "instant", "range_"]

# A page does without an answer that takes longer, and says so.
PAGE_SECONDS = 2.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Source: https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview
_ERRORS_BY_TYPE: dict[str, type[QueryError]] = {
    "bad_data": BadQuery,
    "execution": Unanswerable,
    "timeout": TimedOut,
    "canceled": TimedOut,
}
_ERRORS_BY_STATUS: dict[int, type[QueryError]] = {
    HTTPStatus.BAD_REQUEST: BadQuery,
    HTTPStatus.UNPROCESSABLE_ENTITY: Unanswerable,
}


def instant(
    promql: str, at_ms: int, *, shared: SharedReads | None = None, seconds_max: float = math.inf
) -> list[Sample]:
    """The value of each series at one moment (Unix time in ms). A scalar is one sample without labels.

    `shared`: of several queries of one moment on the embedded store each selector is read once. `seconds_max`: how long
    it may take where that is less than what the settings allow.
    """
    if rows.PROMETHEUS_URL.read():
        return samples_from(_data("query", {"query": promql, "time": at_ms / 1000}, seconds_max))
    with embedded.turn(own=True, seconds=seconds_max) as turn:
        value = embedded.instant(turn, promql, at_ms, shared=shared)
        if not isinstance(value, Scalar | Vector):
            raise BadQuery("give a query whose result is a scalar or an instant vector")
        return samples_of(value, at_ms)


def range_(
    promql: str,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    *,
    parts: dict[str, Vector] | None = None,
    seconds_max: float = math.inf,
) -> list[Series]:
    """The values of each series every `step_ms` from `start_ms` to `end_ms`, both included. A scalar is one series.

    `parts`: of several queries of the same steps on the embedded store each aggregate is worked out once, such as the
    rates that three quantiles are of. Begin with an empty one. `seconds_max`: as for `instant`.
    """
    times_ms = embedded.steps(start_ms, end_ms, step_ms)
    if rows.PROMETHEUS_URL.read():
        asked = {"query": promql, "start": start_ms / 1000, "end": end_ms / 1000, "step": step_ms / 1000}
        return series_from(_data("query_range", asked, seconds_max))
    with embedded.turn(own=True, seconds=seconds_max) as turn:
        return list(series_of(embedded.ranged(turn, promql, times_ms, end_ms, parts=parts), times_ms))


def ask(path: str, parameters: list[tuple[str, str]], *, method: str = "POST", seconds_max: float = math.inf) -> Answer:
    """The external server's answer under …/api/v1/. An error of it is raised as the QueryError that it means."""
    url = f"{rows.PROMETHEUS_URL.read().rstrip('/')}/api/v1/{path}"
    try:
        if method == "POST":
            answer = call("POST", url, urlencode(parameters).encode(), _FORM, seconds_max=seconds_max)
        else:
            address = f"{url}?{urlencode(parameters)}" if parameters else url
            answer = call("GET", address, None, {}, seconds_max=seconds_max)
    except UpstreamAway as error:
        raise Unavailable(str(error)) from error
    if answer.status != HTTPStatus.OK:
        raise _error(answer)
    return answer


def _data(path: str, asked: Mapping[str, object], seconds_max: float) -> Any:
    answer = ask(path, [(name, str(value)) for name, value in asked.items()], seconds_max=seconds_max)
    try:
        body = json.loads(answer.body)
        if body["status"] == "success":
            return body["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unavailable(f"the metrics server answered {answer.status} without Prometheus' JSON") from error
    raise _error(answer)


def _error(answer: Answer) -> QueryError:
    """What the server's error means; VictoriaMetrics gives the status in the place of Prometheus' error type."""
    try:
        body = json.loads(answer.body)
        said, kind = str(body["error"]), str(body.get("errorType", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # A proxy's page, a wrong address: nothing that the query could mend.
        return Unavailable(f"the metrics server answered {answer.status} without Prometheus' JSON")
    return (_ERRORS_BY_TYPE.get(kind) or _ERRORS_BY_STATUS.get(answer.status, Unavailable))(said)
