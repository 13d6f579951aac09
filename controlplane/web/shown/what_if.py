"""What the pages of what-if runs show: progress, the heat table of goodput, and why the peak is where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from controlplane.planner.models import OPEN_STATES, WhatIfRun
from controlplane.planner.what_if_table import grid, groups, is_peak
from controlplane.web.shown.quantities import difference, of_hundred, whole
from controlplane.web.shown.spoken import spoken
from policy.what_if import best_load, goodput_of

# Shades of the table, from none of the best goodput to all of it.
SHADES = 10
# Settings of an engine, as its command line has them.
ENGINE_SETTINGS = {"max_num_seqs": "max-num-seqs", "max_num_batched_tokens": "max-num-batched-tokens"}


class Cell(NamedTuple):
    """One point. `text` is its goodput, `title` what stands behind it; `shade` 0 to SHADES, None: it cannot start."""

    text: str
    title: str
    shade: int | None
    is_peak: bool


class Heat(NamedTuple):
    """Goodput over max_num_seqs (rows) and max_num_batched_tokens (columns). `shared`: what else its points have."""

    shared: str
    columns: list[int]
    rows: list[tuple[int, list[Cell | None]]]


class RunLine(NamedTuple):
    row: WhatIfRun
    percent: int | None

    @property
    def is_open(self) -> bool:
        return self.row.state in OPEN_STATES


def line_of(row: WhatIfRun) -> RunLine:
    running = row.state == "running" and row.runs
    return RunLine(row, 100 * row.runs_done // row.runs if running else None)


def heats(report: Mapping[str, Any]) -> list[Heat]:
    """One table for each combination of the other settings."""
    best = max(map(goodput_of, report["points"]), default=0.0)
    return [_heat(shared, points, best, report["peak"]) for shared, points in groups(report["points"])]


def _heat(shared: str, points: Sequence[Mapping[str, Any]], best: float, peak: Mapping[str, Any] | None) -> Heat:
    columns, rows = grid(points)
    return Heat(shared, columns, [(seqs, [_cell(point, best, peak) for point in row]) for seqs, row in rows])


def _cell(point: Mapping[str, Any] | None, best: float, peak: Mapping[str, Any] | None) -> Cell | None:
    if point is None:
        return None
    load = best_load(point)
    if point["cannot"] or load is None:
        return Cell("–", spoken(point["cannot"]), None, False)
    goodput = goodput_of(point)
    title = " · ".join(
        f"{name.upper()} p95 {whole(load[f'{name}_ms']['p95'])} ms" for name in ("ttft", "tpot") if load[f"{name}_ms"]
    )
    shade = round(SHADES * goodput / best) if best else 0
    return Cell(number_format(goodput, 2, use_l10n=True), title, shade, is_peak(point, peak))


def peak_load(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What was measured at the peak."""
    point = next((each for each in report["points"] if is_peak(each, report["peak"])), None)
    return None if point is None else best_load(point)


def reasons(report: Mapping[str, Any]) -> list[str]:
    """Each neighbour of the peak as a sentence."""
    return [_reason(why) for why in report["peak"]["why"]] if report["peak"] else []


def _reason(why: Mapping[str, Any]) -> str:
    shown = {"setting": why["setting"], "from": whole(why["from"]), "to": whole(why["to"])}
    if why["cause"] == "cannot":
        return _("%(setting)s %(from)s → %(to)s: the engine does not start") % shown
    shown["change"] = difference(why["goodput_change"], 1)
    text = _("%(setting)s %(from)s → %(to)s: goodput %(change)s") % shown
    cause = _cause(why)
    return f"{text}: {cause}" if cause else text


def _cause(why: Mapping[str, Any]) -> str:
    causes = {
        "ttft": _("more first tokens come too late"),
        "tpot": _("more answers come too slowly"),
        "e2e": _("more answers end too late"),
        "refused": _("the gateway refuses more"),
        "unfinished": _("more do not end"),
        "too_long": _("more are longer than the engine takes"),
    }
    if why["cause"] is None:
        return ""
    told = [" → ".join(of_hundred(100 * why[name], 1) for name in ("share_before", "share_after"))]
    if why.get("p95_before_ms") is not None and why.get("p95_after_ms") is not None:
        told.append(f"p95 {whole(why['p95_before_ms'])} → {whole(why['p95_after_ms'])} ms")
    if "preemptions_per_minute" in why:
        told.append(_("%(count)s preemptions a minute") % {"count": whole(why["preemptions_per_minute"])})
    return f"{causes[why['cause']]} ({'; '.join(told)})"


def engine_arguments(report: Mapping[str, Any]) -> dict[str, int]:
    """The settings of the peak as an engine's arguments."""
    settings = report["peak"]["settings"]
    return {argument: settings[name] for name, argument in ENGINE_SETTINGS.items()}
