"""docs/charts.md: every chart of the dashboards with its PromQL, from the rows."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import override

from dashboards.charts import LAYERS, Chart, Layer
from dashboards.spans import SPANS

_HEAD = """\
# Charts and their PromQL

What each chart of the [dashboards](dashboards.md) asks, as over 1 h: a point every 15 s, and rates and gauges look back
a minute. A pool, tenant or node that is chosen stands as a label within the braces of every selector. Over days the
recorded series are asked, here as over 24 h. [Grafana's boards](grafana.md) are made of the same rows.
"""
_RAW, _RECORDED = SPANS["1h"], SPANS["24h"]


def charts_page() -> str:
    with override("en"):
        return "\n".join([_HEAD, *(line for layer in LAYERS for line in _layer(layer))])


def _layer(layer: Layer) -> Iterator[str]:
    yield f"## {layer.title}\n\n`/dashboards/{layer.path}`. {layer.lead}\n"
    for section in layer.sections:
        yield f"### {section.title}\n"
        for chart in section.charts:
            yield from _chart(chart)


def _chart(chart: Chart) -> Iterator[str]:
    taken = f"By {', '.join(chart.takes)}." if chart.takes else ""
    unit = f" ({chart.unit.text})" if chart.unit.text else ""
    yield f"**{chart.title}**{unit}. {chart.note} {taken}\n"
    yield "```promql"
    for query in chart.queries:
        yield query.over(_RAW)
    if chart.is_recorded:
        known = ", ".join(chart.labels_over(_RECORDED))
        yield f"# over days{f', by {known}' if chart.recorded_takes is not None else ''}"
    for query in chart.queries:
        if query.recorded:
            yield query.over(_RECORDED)
    yield "```\n"
