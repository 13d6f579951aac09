"""All runs of an ask, in several processes, and the report that they make."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from policy.what_if import peak_of
from simulator.what_if_run import Outcome, Run, limits_of
from wire.what_if import Ask, Point, points

LOOK_SECONDS = 1.0
# Told after each look: how many runs have ended, of how many.
Told = Callable[[int, int], None]


class OverTime(RuntimeError):
    """The runs took longer than `limit_seconds`."""


class _Item(NamedTuple):
    point: int
    load: int
    seed: int


def sweep(ask: Ask, told: Told) -> dict[str, Any]:
    """Run every point that an engine would start with. Raises OverTime."""
    began = time.monotonic()
    tried = points(ask)
    cannot = {index: why for index, point in enumerate(tried) if (why := _cannot(ask, point))}
    items = [
        _Item(index, load, seed)
        for index in range(len(tried))
        if index not in cannot
        for load in range(len(ask.loads))
        for seed in range(ask.seeds)
    ]
    outcomes = _run_all(ask, tried, items, told, began + ask.limit_seconds)
    found = [
        {
            "settings": msgspec.to_builtins(point),
            "cannot": cannot.get(index),
            "loads": []
            if index in cannot
            else [
                _of_load(ask, load, [outcomes[_Item(index, place, seed)] for seed in range(ask.seeds)])
                for place, load in enumerate(ask.loads)
            ],
        }
        for index, point in enumerate(tried)
    ]
    return {
        "points": found,
        "peak": peak_of(found),
        "runs": len(items),
        "seeds": ask.seeds,
        "slo": msgspec.to_builtins(ask.slo),
        "took_seconds": round(time.monotonic() - began, 1),
    }


def processes_for(ask: Ask, items: int) -> int:
    """How many there may be: what is asked, or all cores but one; never more than there are cores, or runs."""
    cores = os.cpu_count() or 1
    return max(1, min(ask.processes or cores - 1, cores, items))


def _run_all(
    ask: Ask, tried: Sequence[Point], items: Sequence[_Item], told: Told, deadline: float
) -> dict[_Item, Outcome]:
    outcomes: dict[_Item, Outcome] = {}
    told(0, len(items))
    if not items:
        return outcomes
    # Spawned: each ends by itself when this process is gone.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes_for(ask, len(items)), _begin, (ask, tried)) as pool:
        results = pool.imap_unordered(_run, items)
        while len(outcomes) < len(items):
            try:
                item, outcome = results.next(LOOK_SECONDS)
                outcomes[item] = outcome
            except multiprocessing.TimeoutError:
                pass
            told(len(outcomes), len(items))
            if time.monotonic() > deadline and len(outcomes) < len(items):
                raise OverTime(
                    f"{len(outcomes)} of {len(items)} runs ended within {ask.limit_seconds} s; give more "
                    "limit_seconds, or fewer settings, loads, seeds or measured_seconds"
                )
    return outcomes


_asked: tuple[Ask, Sequence[Point]]


def _begin(ask: Ask, tried: Sequence[Point]) -> None:
    global _asked
    _asked = ask, tried


def _run(item: _Item) -> tuple[_Item, Outcome]:
    ask, tried = _asked
    return item, Run(ask, tried[item.point], ask.loads[item.load], item.seed).outcome()


def _cannot(ask: Ask, point: Point) -> str | None:
    try:
        limits_of(ask, point)
    except ValueError as error:
        return str(error)
    return None


def _of_load(ask: Ask, load: float, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One point under one load: means over the seeds, and how far these are apart."""
    goodputs = [outcome.good / ask.measured_seconds for outcome in outcomes]
    arrived = max(1, sum(outcome.arrived for outcome in outcomes))
    missed = [msgspec.to_builtins(outcome.missed) for outcome in outcomes]
    return {
        "load": load,
        "rate_per_second": sum(outcome.arrived for outcome in outcomes) / ask.measured_seconds / len(outcomes),
        "goodput": {"mean": fmean(goodputs), "min": min(goodputs), "max": max(goodputs)},
        "good_share": sum(outcome.good for outcome in outcomes) / arrived,
        "missed": {name: sum(each[name] for each in missed) / arrived for name in missed[0]},
        "ttft_ms": _in_ms([outcome.ttft for outcome in outcomes]),
        "tpot_ms": _in_ms([outcome.tpot for outcome in outcomes]),
        "e2e_ms": _in_ms([outcome.e2e for outcome in outcomes]),
        "wait_ms": _in_ms([outcome.wait for outcome in outcomes]),
        "output_tokens_per_second": fmean(outcome.output_tokens_per_second for outcome in outcomes),
        "preemptions_per_minute": fmean(outcome.preemptions for outcome in outcomes) / ask.measured_seconds * 60,
        "kv_use": {
            "mean": fmean(outcome.kv_use_mean for outcome in outcomes),
            "peak": max(outcome.kv_use_peak for outcome in outcomes),
        },
        "running_mean": fmean(outcome.running_mean for outcome in outcomes),
        "busy": fmean(outcome.busy for outcome in outcomes),
    }


def _in_ms(quantiles: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the seeds in which something was measured."""
    seen = [each for each in quantiles if each]
    return {name: fmean(each[name] for each in seen) * 1000 for name in (seen[0] if seen else ())}
