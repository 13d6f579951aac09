"""Each chart as calls of Prometheus' HTTP API, for a shell. A line never holds a token."""

from __future__ import annotations

import shlex

from django.http import HttpRequest

from dashboards.charts import Chart
from dashboards.spans import Span


def curl_lines(request: HttpRequest, chart: Chart, span: Span) -> str:
    """One call for each query of the chart, over the span up to the moment it is run."""
    address = shlex.quote(request.build_absolute_uri("/prometheus/api/v1/query_range"))
    return "\n".join(
        " \\\n  ".join(
            (
                'curl --fail-with-body -H "Authorization: Bearer $HEADWORKS_TOKEN" -G',
                f"--data-urlencode {shlex.quote(f'query={query.over(span)}')}",
                f'-d "start=$(($(date +%s) - {span.seconds}))" -d "end=$(date +%s)" -d step={span.step_seconds}',
                address,
            )
        )
        for query in chart.queries
    )
