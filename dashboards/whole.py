"""Everything the page shows at once: the figures of all charts, and where the live stream goes on."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.fleet.models import Pool
from dashboards.asked import Asked
from dashboards.charts import CHARTS, Chart
from dashboards.figures import Threshold, figure_of
from dashboards.readings import now_ms, reading_of
from dashboards.shell import curl_lines


def whole_of(asked: Asked, request: HttpRequest) -> dict[str, Any]:
    """By chart `figures`, `notes` and shell lines (`curl`), as of `newest_ms`; `stream`: where what follows is."""
    newest_ms = asked.span.newest_ms(now_ms())
    reading = reading_of(asked.span, asked.span.first_ms(newest_ms), newest_ms)
    slos = _ttft_slos(asked.pool)
    return {
        "newest_ms": newest_ms,
        "points": asked.span.points,
        "stream": f"{reverse('dashboards:live')}?{asked.query(after=newest_ms)}",
        "figures": {
            chart.name: figure_of(
                chart, asked.lines(reading, chart), reading, slos if chart.name == "ttft" else _fixed(chart)
            )
            for chart in CHARTS
        },
        "notes": {chart.name: chart.note_over(asked.span) for chart in CHARTS},
        "curl": {chart.name: curl_lines(request, chart, asked.span) for chart in CHARTS},
    }


def _ttft_slos(pool: str) -> list[Threshold]:
    """One line for each SLO that pools have."""
    rows = Pool.objects.filter(name=pool) if pool else Pool.objects.order_by("name")
    pools: dict[int, list[str]] = {}
    for name, slo_ms in rows.values_list("name", "ttft_slo_ms"):
        if slo_ms is not None:
            pools.setdefault(slo_ms, []).append(name)
    return [
        Threshold(slo_ms / 1000, _("SLO of %(pools)s") % {"pools": ", ".join(names)}) for slo_ms, names in pools.items()
    ]


def _fixed(chart: Chart) -> list[Threshold]:
    return [] if chart.threshold is None else [Threshold(chart.threshold, _("threshold"))]
