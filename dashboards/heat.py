"""The heat map of GPUs over time: what can be chosen, and its figure. Pure: the same rows give the same figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from django.utils.formats import get_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from controlplane.telemetry.query import Series
from dashboards.charts.promql import gauge, highest, mean, mean_gauge
from dashboards.charts.rows import Matcher, Query
from dashboards.spans import Span

Value = float | None
# As many columns as a person tells apart, and none that an agent which reads every 15 s would leave empty.
COLUMNS_MAX, _STEP_SECONDS = 72, 30
# NVML's that take speed away from work; idleness and settings do not.
_SLOWING = 'reason=~"sw_power_cap|hw_slowdown|sw_thermal_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'
_USED, _TOTAL = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"
# A GPU that is cut into MIG instances has series of each beside its own.
_WHOLE_GPU = 'GPU_I_ID=""'
# A row is as high as there is room for, and never so low that it cannot be pointed at.
_ROW_MAX_PIXELS, _ROW_MIN_PIXELS, _ROOM_PIXELS = 16, 3.5, 480
_TOP_PIXELS, _BOTTOM_PIXELS, _RIGHT_PIXELS = 26, 12, 10
_CHARACTER_PIXELS, _NAME_MAX_CHARACTERS = 7, 28
_NAME_PIXELS = 15
# Evenly spaced from the lowest to the highest. Lightness rises evenly and no two differ by red and green alone: Cividis
# (Nuñez, Anderton, Renslow 2018).
_EVEN = ("#00224e", "#33456d", "#666971", "#958f76", "#c9b865", "#fee838")
# From nothing to Okabe and Ito's vermilion, on a light and on a dark ground.
_RARE = (
    "rgba(127,127,127,0.16)",
    "rgba(230,159,0,0.5)",
    "rgba(230,159,0,0.75)",
    "rgba(230,159,0,1)",
    "rgba(222,127,0,1)",
    "rgba(213,94,0,1)",
)


@dataclass(frozen=True)
class Measure:
    """`lowest` and `highest` are the ends of its colours. `by_reason`: hovering tells each reason apart.

    Over days its recorded series draw a row a node; empty: nothing records it.
    """

    name: str
    label: Promise
    note: Promise
    query: Query
    unit: str
    lowest: float = 0
    highest: float = 100
    by_reason: bool = False
    colours: tuple[str, ...] = _EVEN

    @property
    def stops(self) -> list[tuple[float, str]]:
        """Value and colour, in even steps."""
        step = (self.highest - self.lowest) / (len(self.colours) - 1)
        return [(self.lowest + step * place, colour) for place, colour in enumerate(self.colours)]


MEASURES = (
    Measure(
        "temperature",
        gettext_lazy("Temperature"),
        gettext_lazy("A row a GPU, the highest of each cell's time."),
        Query(
            "max by (node, gpu) (max_over_time(DCGM_FI_DEV_GPU_TEMP{$only}[$window]))",
            highest("node:DCGM_FI_DEV_GPU_TEMP:max"),
        ),
        "°C",
        lowest=40,
        highest=90,
    ),
    Measure(
        "throttled",
        pgettext_lazy("GPU", "Held down"),
        gettext_lazy("A row a GPU: the share of time that the driver held its clocks down. Point at a cell for why."),
        Query(mean_gauge("max", "headworks_gpu_clock_event_active", "node, gpu, reason", _SLOWING)),
        "%",
        by_reason=True,
        colours=_RARE,
    ),
    Measure(
        "compute",
        gettext_lazy("Compute"),
        gettext_lazy("A row a GPU, the mean of each cell's time."),
        Query(mean_gauge("max", "DCGM_FI_DEV_GPU_UTIL", "node, gpu"), mean("node:DCGM_FI_DEV_GPU_UTIL:avg")),
        "%",
    ),
    Measure(
        "memory",
        gettext_lazy("Memory"),
        gettext_lazy("A row a GPU, the used part of its memory."),
        Query(
            f"100 * {gauge('max', _USED, 'node, gpu', _WHOLE_GPU)} / {gauge('max', _TOTAL, 'node, gpu', _WHOLE_GPU)}",
            f"100 * {mean(f'node:{_USED}:sum')} / {mean(f'node:{_TOTAL}:sum')}",
        ),
        "%",
    ),
)
BY_NAME = {measure.name: measure for measure in MEASURES}
REASONS = {
    "sw_power_cap": gettext_lazy("power cap"),
    "hw_slowdown": gettext_lazy("hardware slowdown"),
    "sw_thermal_slowdown": gettext_lazy("heat (software)"),
    "hw_thermal_slowdown": gettext_lazy("heat (hardware)"),
    "hw_power_brake_slowdown": gettext_lazy("power brake"),
}


Held = tuple[tuple[str, float], ...]


class Owner(NamedTuple):
    """Whose row it is; of a node as a whole `gpu` is None."""

    node: str
    gpu: int | None

    @property
    def name(self) -> str:
        return self.node if self.gpu is None else f"{self.node} · GPU {self.gpu}"


@dataclass(frozen=True)
class Row:
    """One value a column, None where nothing was measured. `held`: by reason its share of time, the longest first."""

    owner: Owner
    values: Sequence[Value]
    held: Sequence[Held] = ()


@dataclass(frozen=True)
class Heat:
    """The rows of a measure at `times_ms`, at which each cell's time of `step_seconds` ends. `refused`: why none."""

    measure: Measure
    span: Span
    step_seconds: int
    times_ms: Sequence[int]
    rows: Sequence[Row]
    refused: str = ""


def step_of(span: Span) -> int:
    """Seconds of a column."""
    return max(_STEP_SECONDS, math.ceil(span.seconds / COLUMNS_MAX / _STEP_SECONDS) * _STEP_SECONDS)


def promql_of(measure: Measure, span: Span, matchers: Sequence[Matcher]) -> str:
    """Each cell looks at its own time alone. Empty where over days nothing is recorded."""
    step_seconds = step_of(span)
    return measure.query.over(Span("", span.seconds, step_seconds, step_seconds, span.is_recorded), matchers)


def rows_of(measure: Measure, series: Iterable[Series], times_ms: Sequence[int]) -> list[Row]:
    """One row a GPU, nodes and GPUs in their order."""
    scale = 100 if measure.by_reason else 1
    found: dict[Owner, dict[str, list[Value]]] = {}
    for each in series:
        known = dict(zip(each.times_ms, each.values, strict=True))
        found.setdefault(_owner(each.labels), {})[each.labels.get("reason", "")] = [
            value * scale if (value := known.get(at)) is not None and math.isfinite(value) else None for at in times_ms
        ]
    return [_row(owner, found[owner], measure) for owner in sorted(found, key=_place)]


def _owner(labels: Mapping[str, str]) -> Owner:
    gpu = labels.get("gpu", "")
    return Owner(labels.get("node", ""), int(gpu) if gpu.isascii() and gpu.isdecimal() else None)


def _place(owner: Owner) -> tuple[str, int]:
    return owner.node, -1 if owner.gpu is None else owner.gpu


def _row(owner: Owner, by_reason: Mapping[str, list[Value]], measure: Measure) -> Row:
    if not measure.by_reason:
        return Row(owner, next(iter(by_reason.values())))
    # Reasons hold at the same time: the longest is what is certain.
    steps = list(zip(*by_reason.values(), strict=True))
    values = [max(known) if (known := [value for value in step if value is not None]) else None for step in steps]
    held = [_held(by_reason, step) if value else () for value, step in zip(values, steps, strict=True)]
    return Row(owner, values, held)


def _held(reasons: Iterable[str], shares: Sequence[Value]) -> Held:
    held = ((reason, share) for reason, share in zip(reasons, shares, strict=True) if share)
    return tuple(sorted(held, key=lambda each: -each[1]))


def _words(rows: Sequence[Row]) -> Iterator[list[str]]:
    """What holds each down, in the reader's language: rows are shared by readers of every one."""
    labels = {reason: str(label) for reason, label in REASONS.items()}
    for row in rows:
        yield [", ".join(f"{labels.get(reason, reason)} {share:.0f} %" for reason, share in held) for held in row.held]


def figure_of(heat: Heat) -> dict[str, Any]:
    """A Plotly figure. `layout.meta`: the `height` that it wants (pixels), and its `legend`."""
    rows, measure = heat.rows, heat.measure
    bands = [(node, len(list(group))) for node, group in groupby(rows, lambda row: row.owner.node)]
    height = min(_ROW_MAX_PIXELS, max(_ROW_MIN_PIXELS, _ROOM_PIXELS / max(1, len(rows)))) * len(rows)
    longest = min(_NAME_MAX_CHARACTERS, max((len(node) for node, _count in bands), default=0))
    return {
        "data": [_trace(heat)] if rows else [],
        "layout": {
            "margin": {
                "l": 14 + longest * _CHARACTER_PIXELS,
                "r": _RIGHT_PIXELS,
                "t": _TOP_PIXELS,
                "b": _BOTTOM_PIXELS,
            },
            "meta": {
                "height": round(height) + _TOP_PIXELS + _BOTTOM_PIXELS if rows else 190,
                "legend": [{"text": f"{value:.0f}", "colour": colour} for value, colour in measure.stops],
                "unit": measure.unit,
            },
            "dragmode": "zoom" if rows else False,
            "hovermode": "closest",
            "separators": get_format("DECIMAL_SEPARATOR") + get_format("THOUSAND_SEPARATOR"),
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": {
                "type": "date",
                "range": [heat.times_ms[0] - heat.step_seconds * 1000, heat.times_ms[-1]],
                "tickformatstops": [
                    {"dtickrange": [None, 86_399_999], "value": "%H:%M"},
                    {"dtickrange": [86_400_000, None], "value": "%m-%d"},
                ],
                "side": "top",
                "showgrid": False,
                "zeroline": False,
                "visible": bool(rows),
            },
            "yaxis": _names(bands, height),
            "shapes": _lines(bands),
            "annotations": [] if rows else [_instead(heat)],
        },
    }


def _trace(heat: Heat) -> dict[str, Any]:
    measure, half_ms = heat.measure, heat.step_seconds * 500
    note = "<br>%{text}" if measure.by_reason else ""
    trace = {
        "type": "heatmap",
        # A cell ends at its moment.
        "x": [at - half_ms for at in heat.times_ms],
        "y": [escape(row.owner.name) for row in heat.rows],
        "z": [[None if value is None else round(value) for value in row.values] for row in heat.rows],
        "zmin": measure.lowest,
        "zmax": measure.highest,
        "colorscale": [[place / (len(measure.colours) - 1), colour] for place, colour in enumerate(measure.colours)],
        # Plotly's own sets style attributes, which the policy forbids: the script writes one from `layout.meta`.
        "showscale": False,
        "hoverongaps": False,
        "xgap": 1,
        "hovertemplate": f"%{{y}}<br>%{{x|%Y-%m-%d %H:%M:%S}}<br>%{{z}} {measure.unit}{note}<extra></extra>",
    }
    if measure.by_reason:
        trace["text"] = list(_words(heat.rows))
    return trace


def _names(bands: Sequence[tuple[str, int]], height: float) -> dict[str, Any]:
    """The name of a node in the middle of its rows, where names have room beside each other."""
    rows = sum(count for _node, count in bands)
    every = max(1, math.ceil(_NAME_PIXELS * len(bands) / height)) if rows else 1
    places, names, first = [], [], 0
    for place, (node, count) in enumerate(bands):
        if place % every == 0:
            places.append(first + (count - 1) / 2)
            short = node if len(node) <= _NAME_MAX_CHARACTERS else f"{node[: _NAME_MAX_CHARACTERS - 1]}…"
            names.append(escape(short))
        first += count
    return {
        "type": "category",
        "range": [rows - 0.5, -0.5],
        "tickmode": "array",
        "tickvals": places,
        "ticktext": names,
        "ticks": "",
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "visible": bool(rows),
    }


def _lines(bands: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Between each two nodes."""
    found, first = [], 0
    for _node, count in bands[:-1]:
        first += count
        across = {"xref": "paper", "x0": 0, "x1": 1, "y0": first - 0.5, "y1": first - 0.5}
        found.append({"type": "line", **across, "line": {"width": 1}})
    return found


def _instead(heat: Heat) -> dict[str, Any]:
    """What an empty map says."""
    if heat.refused:
        text = _("The metric store did not answer: %s") % escape(heat.refused)
    elif heat.span.is_recorded and not heat.measure.query.recorded:
        text = _("Days of this are not recorded. Choose 6 h or less.")
    else:
        text = _("Nothing was measured in this time. Does an agent run on a node with GPUs, and does it see them?")
    return {"text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}


def highest_now(heat: Heat, count: int = 5) -> list[str]:
    """The GPUs with the highest values in the newest column, in words; those with nothing to say are left out."""
    newest = [(row.values[-1], row) for row in heat.rows if row.values and row.values[-1] is not None]
    worth = sorted(((value, row) for value, row in newest if value > heat.measure.lowest), key=lambda each: -each[0])
    chosen = worth[:count]
    why = [words[-1] if words else "" for words in _words([row for _value, row in chosen])]
    return [
        f"{row.owner.name}: {value:.0f} {heat.measure.unit}" + (f" ({words})" if words else "")
        for (value, row), words in zip(chosen, why, strict=True)
    ]
