"""Where a sweep of engine settings has its peak of goodput, and why it falls on either side of it.

Works on the points of a report of `simulator.what_if`, or of `headworks tune`, which measured a real engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "replicas", "kv_capacity_tokens", "max_concurrency")
# Points this near to the best are as good: less is within what seeds tell apart.
LEVEL_SHARE = 0.01
# So much of what comes is good: the settings do not bound it.
MET_SHARE = 0.99
Point = Mapping[str, Any]


class Cause(NamedTuple):
    """What changed most between two points: a share of requests that missed, and the latency or count that tells it."""

    missed: str
    before: float
    after: float


def goodput_of(point: Point) -> float:
    """Of the load under which it is highest; 0 where the engine does not start so."""
    return max((load["goodput"]["mean"] for load in point["loads"]), default=0.0)


def best_load(point: Point) -> Mapping[str, Any] | None:
    """The least load that brings the point's goodput."""
    return next((load for load in point["loads"] if load["goodput"]["mean"] == goodput_of(point)), None)


def peak_of(points: Sequence[Point]) -> dict[str, Any] | None:
    """The best point; None where none is good at all.

    Of those as good as the best (LEVEL_SHARE) it is the one with the fewest replicas, then the lowest TPOT and TTFT.
    """
    best = max(map(goodput_of, points), default=0.0)
    if not best:
        return None
    level = [point for point in points if goodput_of(point) >= best * (1 - LEVEL_SHARE)]
    peak = min(level, key=_cost)
    load = best_load(peak)
    if load is None:
        return None
    return {
        "settings": dict(peak["settings"]),
        "goodput_per_second": goodput_of(peak),
        "load": load["load"],
        "as_good": len(level),
        "load_is_met": load["load"] == max(each["load"] for each in peak["loads"]) and load["good_share"] >= MET_SHARE,
        "why": list(_why(peak, points)),
    }


def _cost(point: Point) -> tuple[float, ...]:
    load = best_load(point) or {}
    latencies = (load.get(name, {}).get("p95", 0.0) for name in ("tpot_ms", "ttft_ms"))
    return (point["settings"]["replicas"], *latencies, point["settings"]["max_num_seqs"])


def _why(peak: Point, points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    """The neighbours of the peak: one setting a step less or more, all else the same."""
    for name in SETTINGS:
        line = sorted(
            (point for point in points if _same_but(point, peak, name) and point["settings"][name] is not None),
            key=lambda point: point["settings"][name],
        )
        at = next((index for index, point in enumerate(line) if point is peak), None)
        if at is None:
            continue
        for other in line[max(0, at - 1) : at] + line[at + 1 : at + 2]:
            yield _compared(name, peak, other)


def _same_but(point: Point, peak: Point, name: str) -> bool:
    return all(point["settings"][other] == peak["settings"][other] for other in SETTINGS if other != name)


def _compared(name: str, peak: Point, other: Point) -> dict[str, Any]:
    found: dict[str, Any] = {
        "setting": name,
        "from": peak["settings"][name],
        "to": other["settings"][name],
        "goodput_change": goodput_of(other) / goodput_of(peak) - 1,
        "cause": None,
    }
    if other.get("cannot"):
        return {**found, "cause": "cannot", "says": other["cannot"]}
    load = best_load(peak)
    there = next((each for each in other["loads"] if load and each["load"] == load["load"]), None)
    if load is None or there is None or found["goodput_change"] >= -LEVEL_SHARE:
        return found
    more = {kind: there["missed"][kind] - load["missed"][kind] for kind in load["missed"]}
    kind = max(more, key=lambda each: more[each])
    if more[kind] <= 0:
        return found
    cause = {"cause": kind, "share_before": load["missed"][kind], "share_after": there["missed"][kind]}
    told = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms"}.get(kind)
    if told:
        cause |= {"p95_before_ms": load[told].get("p95"), "p95_after_ms": there[told].get("p95")}
    if there["preemptions_per_minute"] > 2 * load["preemptions_per_minute"] + 1:
        cause["preemptions_per_minute"] = there["preemptions_per_minute"]
    return {**found, **cause}


_CAUSES = {
    "ttft": "more first tokens come too late",
    "tpot": "more answers come too slowly",
    "e2e": "more answers end too late",
    "refused": "the gateway refuses more",
    "unfinished": "more do not end",
    "too_long": "more are longer than the engine takes",
}


def words(why: Mapping[str, Any]) -> str:
    """One neighbour of the peak as a line for a shell."""
    line = f"{why['setting']} {why['from']:,} → {why['to']:,}: "
    if why["cause"] == "cannot":
        return f"{line}the engine does not start ({why['says']})"
    line += f"goodput {why['goodput_change']:+.1%}"
    if why["cause"] is None:
        return line
    line += f": {_CAUSES[why['cause']]} ({why['share_before']:.1%} → {why['share_after']:.1%}"
    if why.get("p95_after_ms") is not None and why.get("p95_before_ms") is not None:
        line += f"; p95 {why['p95_before_ms']:,.0f} → {why['p95_after_ms']:,.0f} ms"
    if "preemptions_per_minute" in why:
        line += f"; {why['preemptions_per_minute']:,.0f} preemptions a minute"
    return f"{line})"
