"""What all charts show of a span: read once for all who look at the same moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from controlplane.telemetry.promql.values import Vector
from controlplane.telemetry.query import QueryError, range_
from dashboards.charts import Chart, Layer, Only
from dashboards.charts.rows import Hosts, Matcher
from dashboards.lines import Line, lines_of
from dashboards.shared import Shared
from dashboards.spans import SPANS, Span

log = logging.getLogger(__name__)

# Each of 50 nodes with 8 GPUs is a few MB; whoever looks at one span of a layer looks at the same moment.
_KEPT_READINGS = 16


@dataclass(frozen=True)
class Reading:
    """Lines by chart at `times_ms`. `refused`: why the metric store did not answer a chart."""

    span: Span
    times_ms: list[int]
    lines: Mapping[str, list[Line]]
    refused: Mapping[str, str]


_readings: Shared[Reading] = Shared(_KEPT_READINGS)
# Charts by layer and span: a longer one may be refused where a shorter is not.
_refused: dict[tuple[str, str], Set[str]] = {}


def reading_of(layer: Layer, only: Only, span: Span, first_ms: int, last_ms: int, hosts: Hosts) -> Reading:
    """The points from `first_ms` to `last_ms`, both included and on the steps of the span.

    `hosts`: of the chosen pool.
    """
    key = layer.name, only, hosts, span, first_ms, last_ms
    reading = _readings.get(key, lambda: read(layer, only, span, first_ms, last_ms, hosts))
    if reading.refused and last_ms < span.newest_ms(now_ms()):
        # No later moment asks anew by itself; a viewer who tries again does.
        _readings.forget(key)
    return reading


def read(layer: Layer, only: Only, span: Span, first_ms: int, last_ms: int, hosts: Hosts = ()) -> Reading:
    """Ask the metric store, unshared. A chart whose series do not know a chosen label shows all of them.

    `hosts`: of the chosen pool, for those that know no pools and nodes.
    """
    times_ms = list(range(first_ms, last_ms + 1, span.step_ms))
    lines: dict[str, list[Line]] = {}
    refused: dict[str, str] = {}
    parts: dict[str, Vector] = {}
    for chart in layer.charts:
        try:
            lines[chart.name] = _lines(chart, chart.chosen(span, only, hosts), span, times_ms, parts)
        except QueryError as error:
            refused[chart.name] = str(error)
    _tell(layer, span, refused)
    return Reading(span, times_ms, lines, refused)


def _tell(layer: Layer, span: Span, refused: Mapping[str, str]) -> None:
    """Say in the log that charts have no answer, or have one again; not at every step."""
    if span.name not in SPANS:
        return
    key, page = (layer.name, span.name), f"{layer.name}, {span.name}"
    before = _refused.get(key, frozenset())
    if refused and refused.keys() != before:
        why = "; ".join(f"{name}: {why}" for name, why in refused.items())
        log.warning("charts of %s without an answer: %s", page, why)
    elif before and not refused:
        log.info("all charts of %s are answered again", page)
    _refused[key] = refused.keys()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _lines(
    chart: Chart, matchers: Sequence[Matcher], span: Span, times_ms: list[int], parts: dict[str, Vector]
) -> list[Line]:
    found = []
    for query in chart.queries:
        if promql := query.over(span, matchers):
            series = range_(promql, times_ms[0], times_ms[-1], span.step_ms, parts=parts)
            found += lines_of(chart, query, series, times_ms)
    return found
