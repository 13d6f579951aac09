"""Each chart as calls of Prometheus' HTTP API and as values, for a shell. A line never holds a token."""

from __future__ import annotations

import shlex

from django.http import HttpRequest
from django.urls import reverse

from dashboards.asked import Asked
from dashboards.charts import Chart
from dashboards.charts.rows import Hosts

_CURL = 'curl --fail-with-body -H "Authorization: Bearer $HEADWORKS_TOKEN"'


def curl_lines(request: HttpRequest, chart: Chart, asked: Asked, hosts: Hosts) -> str:
    """One call for each query of the chart, and one for its values as they are drawn."""
    span = asked.span
    calls = [
        range_line(request, promql, asked, span.step_seconds)
        for query in chart.queries
        if (promql := query.over(span, chart.chosen(span, asked.only, hosts)))
    ]
    values = shlex.quote(request.build_absolute_uri(csv_address(chart, asked)))
    return "\n".join([*calls, " \\\n  ".join((_CURL, values))])


def csv_address(chart: Chart, asked: Asked) -> str:
    """Where the values of a chart are, as they are drawn."""
    return f"{reverse('dashboards:chart_csv', args=[chart.name])}?{asked.query()}"


def range_line(request: HttpRequest, promql: str, asked: Asked, step_seconds: int) -> str:
    """One call for a query over what was asked for; a time that goes on ends at the moment it is run."""
    if asked.end_ms is None:
        times = f'-d "start=$(($(date +%s) - {asked.span.seconds}))" -d "end=$(date +%s)"'
    else:
        times = f"-d start={asked.end_ms // 1000 - asked.span.seconds} -d end={asked.end_ms // 1000}"
    return " \\\n  ".join(
        (
            f"{_CURL} -G",
            f"--data-urlencode {shlex.quote(f'query={promql}')}",
            f"{times} -d step={step_seconds}",
            shlex.quote(request.build_absolute_uri("/prometheus/api/v1/query_range")),
        )
    )
