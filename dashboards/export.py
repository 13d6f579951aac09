"""`GET /dashboards/<chart>.csv`: the values of a chart as they are drawn, for a sheet or a script."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.core.errors import Refused
from controlplane.core.security import metrics_reader
from dashboards.asked import Asked
from dashboards.charts import LAYERS, Chart
from dashboards.charts.engines import ENGINES
from dashboards.figures import in_order
from dashboards.heat import Heat
from dashboards.heat_reading import HEAT, heat_at
from dashboards.hosts import hosts_of
from dashboards.lines import Line, Value
from dashboards.readings import Reading, reading_of

_LAYER_OF = {chart.name: layer for layer in LAYERS for chart in layer.charts}
_TEXT = "text/plain; charset=utf-8"
# A sheet takes what begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_Rows = Iterator[list[object]]


@require_GET
def chart_csv(request: HttpRequest, name: str) -> HttpResponse:
    """Of the same parameters as the page; for people by log-in or by API token. All lines, also those not drawn."""
    try:
        metrics_reader(request)
    except Refused as refused:
        return HttpResponse(refused.detail, status=refused.status, content_type=_TEXT)
    if name == HEAT:
        return _heat_csv(request)
    layer = _LAYER_OF.get(name)
    if layer is None:
        raise Http404
    asked = Asked.of({**request.GET.dict(), "layer": layer.name})
    newest_ms = asked.newest_ms
    first_ms, hosts = asked.span.first_ms(newest_ms), hosts_of(asked.only)
    reading = reading_of(layer, asked.only, asked.span, first_ms, newest_ms, hosts)
    if name in reading.refused:
        return _not_answered(reading.refused[name])
    [chart] = (each for each in layer.charts if each.name == name)
    return _file(name, newest_ms, _rows(chart, asked.lines(reading, chart), reading))


def _heat_csv(request: HttpRequest) -> HttpResponse:
    """Of the heat map's measure that `heat` names."""
    asked = Asked.of({**request.GET.dict(), "layer": ENGINES.name})
    heat = heat_at(asked, request.GET.get(HEAT, ""), hosts_of(asked.only))
    return _not_answered(heat.refused) if heat.refused else _file(HEAT, heat.times_ms[-1], _heat_rows(heat))


def _not_answered(why: str) -> HttpResponse:
    return HttpResponse(f"the metric store did not answer: {why}", status=503, content_type=_TEXT)


def _file(name: str, newest_ms: int, rows: _Rows) -> HttpResponse:
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    ended = datetime.fromtimestamp(newest_ms / 1000, UTC)
    response["Content-Disposition"] = f'attachment; filename="{name}-{ended:%Y-%m-%dT%H%M}Z.csv"'
    response["Cache-Control"] = "no-store"
    csv.writer(response, lineterminator="\n").writerows(rows)
    return response


def _rows(chart: Chart, lines: list[Line], reading: Reading) -> _Rows:
    """A line a column, a moment a row."""
    lines = in_order(lines)
    yield ["time", "unix_seconds", *(_head(chart, line) for line in lines)]
    for at, at_ms in enumerate(reading.times_ms):
        yield _row(at_ms, (line.values[at] for line in lines))


def _heat_rows(heat: Heat) -> _Rows:
    """A GPU a column, the end of a cell's time a row."""
    yield ["time", "unix_seconds", *(_cell(f"{row.owner.name} ({heat.measure.unit})") for row in heat.rows)]
    for at, at_ms in enumerate(heat.times_ms):
        yield _row(at_ms, (row.values[at] for row in heat.rows))


def _row(at_ms: int, values: Iterable[Value]) -> list[object]:
    """What was not measured is empty."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return [f"{moment:%Y-%m-%dT%H:%M:%SZ}", at_ms // 1000, *("" if value is None else repr(value) for value in values)]


def _head(chart: Chart, line: Line) -> str:
    unit = str(chart.unit.text)
    return _cell(f"{line.name} {line.query.stat}".strip() + (f" ({unit})" if unit else ""))


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
