"""`/prometheus/federate`: the newest sample of each series that a selector chooses, for another Prometheus to scrape.

Source: web/federate.go of Prometheus.
"""

from __future__ import annotations

import time
from decimal import Decimal
from http import HTTPStatus
from itertools import groupby
from urllib.parse import urlencode

import numpy as np
from django.http import HttpRequest, HttpResponse

from controlplane.core.errors import Refused
from controlplane.core.security import metrics_reader
from controlplane.telemetry import embedded
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.parameters import Parameters
from controlplane.telemetry.promql.errors import QueryError, Unavailable
from controlplane.telemetry.promql.evaluation import LOOK_BACK_MS
from controlplane.telemetry.promql.values import Identity, Labels, identity
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS
from controlplane.telemetry.results import Sample
from controlplane.telemetry.store.columns import bits_of
from controlplane.telemetry.upstream import UpstreamAway, call
from wire.write_body import METRIC_NAME, STALE_BITS

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
# Prometheus gives an empty one to a series without, so that the scraper does not put its own in its place.
_INSTANCE = "instance"
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_PLAIN_FROM_POWER, _PLAIN_BELOW_POWER = -4, 6
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def federate(request: HttpRequest) -> HttpResponse:
    """The page. Every role of the whole fleet reads it."""
    if request.method != "GET":
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, "use GET")
    try:
        metrics_reader(request)
        parameters = Parameters(request, int(time.time() * 1000))
        if url := rows.PROMETHEUS_URL.read():
            return _passed_on(f"{url.rstrip('/')}/federate?{urlencode(parameters.all())}")
        return HttpResponse(exposition(newest(parameters)), content_type=_TEXT)
    except QueryError as error:
        return _error(error.status, str(error))
    except Refused as refused:
        return _error(refused.status, refused.detail)


def newest(parameters: Parameters) -> list[Sample]:
    """The newest sample in the look-back of each series that has not ended, by name and labels. Raises QueryError."""
    found: dict[Identity, Sample] = {}
    now_ms = parameters.now_ms
    with embedded.turn() as turn:
        for matchers in parameters.selectors(needed=False):
            labels, columns = turn.reader.select(matchers, now_ms - LOOK_BACK_MS - 1, now_ms, turn.budget.touch)
            last = np.flatnonzero(np.diff(columns.series, append=len(labels)))
            last = last[bits_of(columns.values[last]) != STALE_BITS]
            for row, time_ms, value in zip(*(column.tolist() for column in columns.take(last)), strict=True):
                found[identity(labels[row])] = Sample(labels[row], time_ms, value)
    return [found[key] for key in sorted(found, key=lambda key: (found[key].labels[METRIC_NAME], key))]


def exposition(samples: list[Sample]) -> str:
    """Prometheus' text format 0.0.4, each line with its time in ms."""
    lines = []
    for name, family in groupby(samples, lambda sample: sample.labels[METRIC_NAME]):
        lines.append(f"# TYPE {name} untyped\n")
        lines += [f"{name}{{{_shown(each.labels)}}} {_number(each.value)} {each.time_ms}\n" for each in family]
    return "".join(lines)


def _shown(labels: Labels) -> str:
    shown = {name: labels[name] for name in sorted(labels) if name != METRIC_NAME}
    shown.setdefault(_INSTANCE, "")
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in shown.items())


def _number(value: float) -> str:
    """As Go's %g with the fewest digits, which turns to powers of ten at a million; minus zero is 0 there."""
    text = repr(value or 0.0)
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    number = Decimal(text).normalize()
    power = number.adjusted()
    if not number or _PLAIN_FROM_POWER <= power < _PLAIN_BELOW_POWER:
        return format(number, "f")
    sign, digits, _ = number.as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{first}{'.' * bool(rest)}{rest}e{power:+03d}"


def _passed_on(url: str) -> HttpResponse:
    try:
        answer = call("GET", url, None, {})
    except UpstreamAway as error:
        raise Unavailable(str(error)) from error
    kind = answer.headers.get("content-type", "")
    if not kind.startswith("text/plain"):
        raise Unavailable(f"the metrics server answered {answer.status} with no page of metrics")
    return HttpResponse(answer.body, status=answer.status, content_type=kind)


def _error(status: int, message: str) -> HttpResponse:
    response = HttpResponse(f"{message}\n", status=status, content_type="text/plain; charset=utf-8")
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
