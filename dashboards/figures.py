"""Figures of the charts, from their lines. Pure: the same lines give the same figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any

from django.utils.formats import get_format
from django.utils.translation import gettext as _

from dashboards.charts import Chart
from dashboards.charts.rows import Look
from dashboards.lines import Line, Value
from dashboards.readings import Reading

# At least 3:1 against the light and the dark ground of the cards (WCAG 1.4.11), neighbours told apart without red and
# green.
COLOURS = ("#2f80d0", "#c2611f", "#16917a", "#a45ac2", "#a17a10", "#d14d72", "#5a7f99", "#6f74d8")
THRESHOLD_COLOUR = "#d0432b"
_DASHES: dict[Look, str] = {"drawn": "solid", "dotted": "dot", "dashed": "dash"}
# As many as a person tells apart, and as there are colours. Of more, those with the highest peaks are drawn.
SHOWN_SERIES = len(COLOURS)
# Numbers as in ISO 8601, which read in every language; days stand where ticks are that far apart.
_TICKS = (
    {"dtickrange": [None, 86_399_999], "value": "%H:%M"},
    {"dtickrange": [86_400_000, None], "value": "%m-%d"},
)
# As long as a line of text in the narrowest chart.
_TEXT_CHARACTERS = 36
# Room for the numbers of an axis, and for half a number above its top: the same for all charts, so that plots line up.
LEFT_PIXELS, TOP_PIXELS = 62, 16


@dataclass(frozen=True)
class Threshold:
    """A line that values should stay below, such as a pool's SLO. In the chart's unit."""

    value: float
    text: str


def figure_of(chart: Chart, lines: Sequence[Line], reading: Reading, thresholds: Sequence[Threshold]) -> dict[str, Any]:
    """A Plotly figure. `layout.meta` is for the legend that the page's script writes."""
    shown, hidden = highest(lines)
    names = sorted({line.name for line in shown})
    colour_of = dict(zip(names, COLOURS, strict=False))
    traces = [_trace(chart, line, reading.times_ms, colour_of[line.name]) for line in shown]
    # Without values the axis has no scale, and a limit would run through what the chart says instead.
    limits = thresholds if traces else ()
    return {
        "data": traces,
        "layout": {
            **_frame(chart, reading, empty=not traces),
            "meta": {
                "unit": str(chart.unit.text),
                "reads": chart.unit.reads,
                "hidden": hidden,
                "refused": chart.name in reading.refused,
                # A line without a value at the newest moment was not measured for longer than that.
                "interval_ms": reading.span.step_ms,
                "thresholds": [{"text": each.text, "value": each.value} for each in limits],
            },
            "shapes": [_threshold(each) for each in limits],
            "annotations": [] if traces else [_instead(chart, reading)],
        },
    }


def highest(lines: Sequence[Line]) -> tuple[list[Line], int]:
    """The lines of at most SHOWN_SERIES series, those with the highest peaks, by name; and how many are left out.

    A series is all lines of one name: p50 and p95 come and go together.
    """
    peaks: dict[str, float] = {}
    for line in lines:
        peaks[line.name] = max(peaks.get(line.name, line.peak), line.peak)
    chosen = set(sorted(peaks, key=lambda name: (-peaks[name], name))[:SHOWN_SERIES])
    return in_order(line for line in lines if line.name in chosen), len(peaks) - len(chosen)


def in_order(lines: Iterable[Line]) -> list[Line]:
    """By name, and of one name as the chart draws them."""
    looks = list(_DASHES)
    return sorted(lines, key=lambda line: (line.name, looks.index(line.query.look)))


def _trace(chart: Chart, line: Line, times_ms: Sequence[int], colour: str) -> dict[str, Any]:
    look = line.query.look
    note = "  <i>%{customdata}</i>" if line.notes else ""
    return {
        "type": "scatter",
        # A gap is a gap. Since windows are longer than steps only the first point there is has no neighbour.
        "mode": "lines" if _has_neighbours(line.values) else "lines+markers",
        "connectgaps": False,
        "name": f"{line.name} {line.query.stat}".strip(),
        "meta": line.key,
        "x": list(times_ms),
        "y": list(line.values),
        "customdata": list(line.notes),
        "line": {"color": colour, "width": 1.8 if look == "drawn" else 1.5, "dash": _DASHES[look]},
        "hovertemplate": f"%{{y:{chart.unit.hover}}}{chart.unit.after}{note}",
    }


def _has_neighbours(values: Sequence[Value]) -> bool:
    return any(None not in pair for pair in pairwise(values))


def _frame(chart: Chart, reading: Reading, *, empty: bool) -> dict[str, Any]:
    return {
        "margin": {"l": LEFT_PIXELS, "r": 10, "t": TOP_PIXELS, "b": 26},
        "hovermode": "x unified",
        "dragmode": "zoom",
        "showlegend": False,
        "separators": get_format("DECIMAL_SEPARATOR") + get_format("THOUSAND_SEPARATOR"),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {
            "type": "date",
            "range": [reading.times_ms[0], reading.times_ms[-1]],
            "tickformatstops": list(_TICKS),
            "hoverformat": "%Y-%m-%d %H:%M" if reading.span.is_recorded else "%H:%M:%S",
            "nticks": 6,
            "zeroline": False,
            "showgrid": not empty,
        },
        "yaxis": {
            "rangemode": "normal" if chart.lowest else "tozero",
            "autorangeoptions": {"include": [each for each in (chart.lowest, chart.highest) if each]},
            "tickformat": chart.unit.axis,
            "ticksuffix": chart.unit.tick,
            "nticks": 5,
            # An axis without values would have numbers of its own.
            "visible": not empty,
            "fixedrange": True,
            "zeroline": False,
            # For numbers that are longer still.
            "automargin": True,
        },
    }


def _threshold(threshold: Threshold) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": threshold.value,
        "y1": threshold.value,
        "line": {"color": THRESHOLD_COLOUR, "width": 1, "dash": "dash"},
    }


def _instead(chart: Chart, reading: Reading) -> dict[str, Any]:
    """What an empty chart says. Plotly breaks no lines, and reads tags in texts."""
    lines = [escape(line) for sentence in _why_empty(chart, reading) for line in wrap(sentence, _TEXT_CHARACTERS)]
    text = "<br>".join(lines)
    return {"text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}


def _why_empty(chart: Chart, reading: Reading) -> list[str]:
    if refused := reading.refused.get(chart.name):
        return [_("The metric store did not answer: %s") % refused]
    if not reading.span.is_recorded:
        return [_("Nothing was measured in this time."), str(chart.absent)]
    if not chart.is_recorded:
        return [_("Days of this are not recorded. Choose 6 h or less.")]
    minutes = reading.span.step_seconds // 60
    return [_("Nothing was recorded in this time. There is a point every %d minutes.") % minutes]


def newer_points(lines: Mapping[str, Sequence[Line]], times_ms: Sequence[int]) -> dict[str, Any]:
    """The points that a live stream sends: by chart and line, at `times_ms`."""
    return {
        "times": list(times_ms),
        "lines": {
            chart: {line.key: {"y": list(line.values), "notes": list(line.notes)} for line in found}
            for chart, found in lines.items()
        },
    }
