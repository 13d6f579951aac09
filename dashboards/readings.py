"""What all charts show of a span: read once for all who look at the same moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass

from controlplane.telemetry.query import QueryError, range_
from dashboards.charts import CHARTS, Chart
from dashboards.lines import Line, lines_of
from dashboards.shared import Shared
from dashboards.spans import Span

log = logging.getLogger(__name__)

# Each of 50 nodes with 8 GPUs is a few MB; whoever looks at one span looks at the same moment.
_KEPT_READINGS = 8


@dataclass(frozen=True)
class Reading:
    """Lines by chart at `times_ms`. `refused`: why the metric store did not answer a chart."""

    span: Span
    times_ms: list[int]
    lines: Mapping[str, list[Line]]
    refused: Mapping[str, str]


_readings: Shared[Reading] = Shared(_KEPT_READINGS)
# Charts by span: a longer one may be refused where a shorter is not.
_refused: dict[Span, Set[str]] = {}


def reading_of(span: Span, first_ms: int, last_ms: int) -> Reading:
    """The points from `first_ms` to `last_ms`, both included and on the steps of the span."""
    return _readings.get((span, first_ms, last_ms), lambda: read(span, first_ms, last_ms))


def read(span: Span, first_ms: int, last_ms: int) -> Reading:
    """Ask the metric store, unshared."""
    times_ms = list(range(first_ms, last_ms + 1, span.step_ms))
    lines: dict[str, list[Line]] = {}
    refused: dict[str, str] = {}
    for chart in CHARTS:
        try:
            lines[chart.name] = _lines(chart, span, times_ms)
        except QueryError as error:
            refused[chart.name] = str(error)
    _tell(span, refused)
    return Reading(span, times_ms, lines, refused)


def _tell(span: Span, refused: Mapping[str, str]) -> None:
    """Say in the log that charts have no answer, or have one again; not at every step."""
    before = _refused.get(span, frozenset())
    if refused and refused.keys() != before:
        why = "; ".join(f"{name}: {why}" for name, why in refused.items())
        log.warning("charts of %s without an answer: %s", span.name, why)
    elif before and not refused:
        log.info("all charts of %s are answered again", span.name)
    _refused[span] = refused.keys()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _lines(chart: Chart, span: Span, times_ms: list[int]) -> list[Line]:
    found = []
    for query in chart.queries:
        series = range_(query.over(span), times_ms[0], times_ms[-1], span.step_ms)
        found += lines_of(chart, query, series, times_ms)
    return found
