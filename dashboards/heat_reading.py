"""What the heat map shows of a time: read once for all who look at the same."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from controlplane.fleet.models import Engine
from controlplane.telemetry.query import QueryError, range_
from dashboards.asked import Asked
from dashboards.charts.rows import Only
from dashboards.heat import BY_NAME, MEASURES, Heat, Measure, figure_of, highest_now, promql_of, rows_of, step_of
from dashboards.shared import Shared
from dashboards.shell import range_line

_heats: Shared[Heat] = Shared(8)


def heat_of(asked: Asked, name: str, request: HttpRequest) -> dict[str, Any]:
    """The figure of a measure, temperature where none has this name; its `note`, the `highest` now, its shell line."""
    measure = BY_NAME.get(name, MEASURES[0])
    step_ms = step_of(asked.span) * 1000
    newest_ms = asked.newest_ms // step_ms * step_ms
    heat = _heats.get((measure.name, asked.span, newest_ms, asked.only), lambda: read(measure, asked, newest_ms))
    promql = promql_of(measure, asked.span, _chosen(asked))
    return {
        "measure": measure.name,
        "figure": figure_of(heat),
        "note": _note(heat),
        "unfiltered": _("Of all tenants: a GPU works for whoever asks.") if asked.tenant else "",
        "highest": highest_now(heat),
        "curl": range_line(request, promql, asked, step_of(asked.span)) if promql else "",
    }


def read(measure: Measure, asked: Asked, newest_ms: int) -> Heat:
    """Ask the metric store, unshared."""
    step_seconds = step_of(asked.span)
    count = max(1, asked.span.seconds // step_seconds)
    times_ms = [newest_ms - step_seconds * 1000 * back for back in reversed(range(count))]
    series, refused = [], ""
    try:
        if promql := promql_of(measure, asked.span, _chosen(asked)):
            series = range_(promql, times_ms[0], times_ms[-1], step_seconds * 1000)
    except QueryError as error:
        refused = str(error)
    rows = rows_of(measure, series, times_ms)
    if asked.pool:
        nodes = _nodes_of(asked.pool)
        rows = [row for row in rows if row.owner.node in nodes]
    return Heat(measure, asked.span, step_seconds, times_ms, rows, refused)


def _chosen(asked: Asked) -> Only:
    return (("node", asked.node),) if asked.node else ()


def _nodes_of(pool: str) -> frozenset[str]:
    """GPUs know no pools: those of its engines' nodes."""
    return frozenset(Engine.objects.filter(pool__name=pool, node__isnull=False).values_list("node__name", flat=True))


def _note(heat: Heat) -> str:
    if heat.span.is_recorded and heat.measure.query.recorded:
        return _("Over days a row is a node: its hottest GPU, or the mean of its GPUs.")
    return str(heat.measure.note)
