"""`GET /dashboards/<chart>.csv`: the values of a chart as they are drawn, for a sheet or a script."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.core.errors import Refused
from controlplane.core.security import metrics_reader
from dashboards.asked import Asked
from dashboards.charts import LAYERS, Chart
from dashboards.figures import in_order
from dashboards.lines import Line
from dashboards.readings import Reading, reading_of

_LAYER_OF = {chart.name: layer for layer in LAYERS for chart in layer.charts}
_TEXT = "text/plain; charset=utf-8"
# A sheet takes what begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@require_GET
def chart_csv(request: HttpRequest, name: str) -> HttpResponse:
    """Of the same parameters as the page; for people by log-in or by API token. All lines, also those not drawn."""
    try:
        metrics_reader(request)
    except Refused as refused:
        return HttpResponse(refused.detail, status=refused.status, content_type=_TEXT)
    layer = _LAYER_OF.get(name)
    if layer is None:
        raise Http404
    asked = Asked.of({**request.GET.dict(), "layer": layer.name})
    newest_ms = asked.newest_ms
    reading = reading_of(layer, asked.only, asked.span, asked.span.first_ms(newest_ms), newest_ms)
    if name in reading.refused:
        return HttpResponse(f"the metric store did not answer: {reading.refused[name]}", status=503, content_type=_TEXT)
    [chart] = (each for each in layer.charts if each.name == name)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    ended = datetime.fromtimestamp(newest_ms / 1000, UTC)
    response["Content-Disposition"] = f'attachment; filename="{name}-{ended:%Y-%m-%dT%H%M}Z.csv"'
    response["Cache-Control"] = "no-store"
    csv.writer(response, lineterminator="\n").writerows(_rows(chart, asked.lines(reading, chart), reading))
    return response


def _rows(chart: Chart, lines: list[Line], reading: Reading) -> Iterator[list[object]]:
    """A line a column, a moment a row. What was not measured is empty."""
    lines = in_order(lines)
    yield ["time", "unix_seconds", *(_head(chart, line) for line in lines)]
    for at, at_ms in enumerate(reading.times_ms):
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        values = ("" if (value := line.values[at]) is None else repr(value) for line in lines)
        yield [f"{moment:%Y-%m-%dT%H:%M:%SZ}", at_ms // 1000, *values]


def _head(chart: Chart, line: Line) -> str:
    unit = str(chart.unit.text)
    text = f"{line.name} {line.query.stat}".strip() + (f" ({unit})" if unit else "")
    return f"'{text}" if text.startswith(_FORMULA) else text
