"""A report of a sweep as text: one table a group of settings, the peak marked, and why it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.what_if import best_load, goodput_of, words

Report = Mapping[str, Any]
_AROUND = ("replicas", "kv_capacity_tokens", "max_concurrency")
_MARK = "*"


def lines(report: Report) -> Iterator[str]:
    """The whole report for a shell."""
    peak = report["peak"]
    for group, points in groups(report["points"]):
        yield "goodput, requests/s" + (f" ({group})" if group else "")
        yield from _table(points, peak)
        yield ""
    yield from _peak(report)
    if calibration := report.get("calibration"):
        yield ""
        yield from calibration_lines(calibration)


def groups(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Points that differ in the two settings of a table alone, and what they share, in words, where it varies."""
    varying = [name for name in _AROUND if len({point["settings"][name] for point in points}) > 1]
    found: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        shared = ", ".join(f"{name} {point['settings'][name] or '–'}" for name in varying)
        found.setdefault(shared, []).append(point)
    return list(found.items())


def grid(points: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[int, list[Mapping[str, Any] | None]]]]:
    """Columns by max_num_batched_tokens, and rows by max_num_seqs with their points."""
    by_place = {(each["settings"]["max_num_seqs"], each["settings"]["max_num_batched_tokens"]): each for each in points}
    columns = sorted({batched for _, batched in by_place})
    rows = sorted({seqs for seqs, _ in by_place})
    return columns, [(seqs, [by_place.get((seqs, batched)) for batched in columns]) for seqs in rows]


def is_peak(point: Mapping[str, Any], peak: Mapping[str, Any] | None) -> bool:
    return peak is not None and point["settings"] == peak["settings"]


def _table(points: Sequence[Mapping[str, Any]], peak: Mapping[str, Any] | None) -> Iterator[str]:
    columns, rows = grid(points)
    yield f"{'seqs / batched':>16}" + "".join(f"{batched:>14,}" for batched in columns)
    for seqs, row in rows:
        yield f"{seqs:>16,}" + "".join(f"{_cell(point, peak):>14}" for point in row)


def _cell(point: Mapping[str, Any] | None, peak: Mapping[str, Any] | None) -> str:
    if point is None or point["cannot"]:
        return "–"
    return f"{goodput_of(point):.2f}{_MARK if is_peak(point, peak) else ' '}"


def _peak(report: Report) -> Iterator[str]:
    peak = report["peak"]
    if peak is None:
        yield "no peak: no request keeps its SLO with any of these settings"
        return
    settings = ", ".join(f"{name} {value:,}" for name, value in peak["settings"].items() if value is not None)
    yield f"{_MARK} peak: {peak['goodput_per_second']:.2f} requests/s with {settings}"
    point = next(each for each in report["points"] if is_peak(each, peak))
    load = best_load(point)
    if load is not None:
        yield from _latencies(load, report["seeds"])
    if peak["as_good"] > 1:
        yield f"  {peak['as_good']} points are as good, within 1 %; of these it is the cheapest and fastest"
    if peak["load_is_met"]:
        yield "  all that comes is served in time: more load would show where the settings begin to matter"
    for neighbour in peak["why"]:
        yield f"  {words(neighbour)}"


def _latencies(load: Mapping[str, Any], seeds: int) -> Iterator[str]:
    spread = load["goodput"]
    yield (
        f"  at {load['rate_per_second']:.2f} requests/s ({load['load']:g} times the arrivals), "
        f"{spread['min']:.2f} to {spread['max']:.2f} over {seeds} runs"
    )
    for name in ("ttft", "tpot", "e2e"):
        told = ", ".join(f"{label} {load[f'{name}_ms'][label]:,.1f}" for label in ("p50", "p95", "p99"))
        yield f"  {name.upper()} ms: {told}"
    yield f"  preemptions a minute: {load['preemptions_per_minute']:.1f}"
    if "kv_use" in load:
        yield f"  KV cache in use: {load['kv_use']['mean']:.0%}, at most {load['kv_use']['peak']:.0%}"


def calibration_lines(calibration: Mapping[str, Any]) -> Iterator[str]:
    """The speed that was found, and each of its errors."""
    speed = calibration["speed"]
    yield "speed: " + ", ".join(f"{name} {value:.3g}" for name, value in speed.items())
    yield f"{'':>10}{'measured ms':>14}{'simulated':>12}{'error':>9}"
    for each in calibration["errors"]:
        simulated = "–" if each["simulated_ms"] is None else f"{each['simulated_ms']:.1f}"
        error = "–" if each["error"] is None else f"{each['error']:+.0%}"
        held = " (held out)" if each["held_out"] else ""
        name = f"{each['metric'].upper()} {each['statistic']}"
        yield f"{name:>10}{each['measured_ms']:>14.1f}{simulated:>12}{error:>9}  {each['observation']}{held}"
