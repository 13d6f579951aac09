"""Everything a page shows at once: the figures of its charts, and where the live stream goes on."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.fleet.models import Pool
from dashboards.asked import Asked
from dashboards.charts import Chart
from dashboards.charts.rows import Hosts
from dashboards.figures import Threshold, figure_of
from dashboards.hosts import hosts_of
from dashboards.marks import shown
from dashboards.readings import reading_of
from dashboards.shell import csv_address, curl_lines

# What pools promise, in ms, by chart.
_PROMISES = {name: f"{name}_slo_ms" for name in ("ttft", "tpot", "e2e")}
_ALL: dict[str, Promise] = {
    "pool": gettext_lazy("pools"),
    "tenant": gettext_lazy("tenants"),
    "node": gettext_lazy("nodes"),
}


def whole_of(asked: Asked, request: HttpRequest) -> dict[str, Any]:
    """By chart `figures`, `notes`, shell lines (`curl`), and why it shows more than was chosen (`unfiltered`), as of
    `newest_ms`; `stream`: where what follows is, empty for a time that has ended.
    """
    span, charts, newest_ms = asked.span, asked.layer.charts, asked.newest_ms
    hosts = hosts_of(asked.only)
    reading = reading_of(asked.layer, asked.only, span, span.first_ms(newest_ms), newest_ms, hosts)
    thresholds = _promised(asked.pool)
    stream = f"{reverse('dashboards:live')}?{asked.query(layer=asked.layer_name, after=newest_ms)}"
    return {
        "first_ms": span.first_ms(newest_ms),
        "newest_ms": newest_ms,
        "points": span.points,
        "stream": stream if asked.end_ms is None else "",
        "figures": {
            chart.name: figure_of(
                chart, asked.lines(reading, chart), reading, thresholds.get(chart.name, _fixed(chart))
            )
            for chart in charts
        },
        "notes": {chart.name: _note(chart, asked, hosts) for chart in charts},
        "unfiltered": {chart.name: unfiltered(chart, asked) for chart in charts},
        "curl": {chart.name: curl_lines(request, chart, asked, hosts) for chart in charts},
        "csv": {chart.name: csv_address(chart, asked) for chart in charts},
        "marks": shown(asked, request),
    }


def _note(chart: Chart, asked: Asked, hosts: Hosts) -> str:
    note = chart.note_over(asked.span)
    return f"{note} {of_hosts(asked.pool, hosts)}" if chart.follows_by_hosts(asked.span, asked.only) else note


def of_hosts(pool: str, hosts: Hosts) -> str:
    """What a chart of GPUs shows of a pool."""
    text = _("Only nodes with engines of %(pool)s.") if hosts else _("No node holds an engine of %(pool)s.")
    return text % {"pool": pool}


def unfiltered(chart: Chart, asked: Asked) -> str:
    """Why a chart shows more than was chosen; empty where it does not."""
    known = {*chart.labels_over(asked.span)}
    if chart.follows_by_hosts(asked.span, asked.only):
        known.add("pool")
    kinds = ", ".join(str(_ALL[label]) for label, _value in asked.only if label not in known)
    return _("Of all %(kinds)s: its series do not tell them apart.") % {"kinds": kinds} if kinds else ""


def _promised(pool: str) -> dict[str, list[Threshold]]:
    """By chart one line for each time that pools promise."""
    rows = Pool.objects.filter(name=pool) if pool else Pool.objects.order_by("name")
    pools: dict[tuple[str, int], list[str]] = {}
    for row in rows.values("name", *_PROMISES.values()):
        for chart, field in _PROMISES.items():
            if row[field] is not None:
                pools.setdefault((chart, row[field]), []).append(row["name"])
    found: dict[str, list[Threshold]] = {chart: [] for chart in _PROMISES}
    for (chart, slo_ms), names in pools.items():
        found[chart].append(Threshold(slo_ms / 1000, _("SLO of %(pools)s") % {"pools": ", ".join(names)}))
    return found


def _fixed(chart: Chart) -> list[Threshold]:
    return [] if chart.threshold is None else [Threshold(chart.threshold, _("threshold"))]
