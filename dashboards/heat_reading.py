"""What the heat map shows of a time: read once for all who look at the same."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.telemetry.query import QueryError, range_
from dashboards.asked import Asked
from dashboards.charts.rows import Hosts, Matcher
from dashboards.heat import BY_NAME, MEASURES, Heat, Measure, figure_of, highest_now, promql_of, rows_of, step_of
from dashboards.hosts import hosts_of
from dashboards.shared import Shared
from dashboards.shell import range_line
from dashboards.whole import of_hosts

# By this name its measure stands in an address, and its values are a file.
HEAT = "heat"

_heats: Shared[Heat] = Shared(8)


def heat_of(asked: Asked, name: str, request: HttpRequest) -> dict[str, Any]:
    """The figure of a measure, temperature where none has this name; its `note`, the `highest` now, its shell line."""
    hosts = hosts_of(asked.only)
    heat = heat_at(asked, name, hosts)
    measure = heat.measure
    promql = promql_of(measure, asked.span, _chosen(asked, hosts))
    return {
        "measure": measure.name,
        "figure": figure_of(heat),
        "note": " ".join([_note(heat), *([of_hosts(asked.pool, hosts)] if asked.pool else [])]),
        "unfiltered": _("Of all tenants: a GPU works for whoever asks.") if asked.tenant else "",
        "highest": highest_now(heat),
        "curl": range_line(request, promql, asked, step_of(asked.span)) if promql else "",
        "csv": f"{reverse('dashboards:chart_csv', args=[HEAT])}?{asked.query(heat=measure.name)}",
    }


def heat_at(asked: Asked, name: str, hosts: Hosts) -> Heat:
    """The rows of a measure, temperature where none has this name. `hosts`: of the chosen pool."""
    measure = BY_NAME.get(name, MEASURES[0])
    step_ms = step_of(asked.span) * 1000
    newest_ms = asked.newest_ms // step_ms * step_ms
    key = measure.name, asked.span, newest_ms, asked.only, hosts
    return _heats.get(key, lambda: read(measure, asked, newest_ms, hosts))


def read(measure: Measure, asked: Asked, newest_ms: int, hosts: Hosts) -> Heat:
    """Ask the metric store, unshared."""
    step_seconds = step_of(asked.span)
    count = max(1, asked.span.seconds // step_seconds)
    times_ms = [newest_ms - step_seconds * 1000 * back for back in reversed(range(count))]
    series, refused = [], ""
    try:
        if promql := promql_of(measure, asked.span, _chosen(asked, hosts)):
            series = range_(promql, times_ms[0], times_ms[-1], step_seconds * 1000)
    except QueryError as error:
        refused = str(error)
    return Heat(measure, asked.span, step_seconds, times_ms, rows_of(measure, series, times_ms), refused)


def _chosen(asked: Asked, hosts: Hosts) -> list[Matcher]:
    return [*([("node", asked.node)] if asked.node else []), *([("node", hosts)] if asked.pool else [])]


def _note(heat: Heat) -> str:
    if heat.span.is_recorded and heat.measure.query.recorded:
        return _("Over days a row is a node: its hottest GPU, or the mean of its GPUs.")
    return str(heat.measure.note)
