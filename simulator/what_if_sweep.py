"""All runs of an ask, in several processes, and the report that they make."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
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


class RunDied(RuntimeError):
    """A process of the runs ended before they had."""


class _Item(NamedTuple):
    point: int
    load: int
    seed: int


def sweep(ask: Ask, told: Told) -> dict[str, Any]:
    """Run every point that an engine would start with. Raises OverTime, RunDied."""
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
    with _working(ask, tried, items) as working:
        while len(outcomes) < len(items):
            for ready in wait(list(working), LOOK_SECONDS):
                item, outcome = _received(ready, working)
                outcomes[item] = outcome
            told(len(outcomes), len(items))
            if time.monotonic() > deadline and len(outcomes) < len(items):
                raise OverTime(
                    f"{len(outcomes)} of {len(items)} runs ended within {ask.limit_seconds} s; give more "
                    "limit_seconds, or fewer settings, loads, seeds or measured_seconds"
                )
    return outcomes


Working = dict[Any, multiprocessing.process.BaseProcess]


@contextmanager
def _working(ask: Ask, tried: Sequence[Point], items: Sequence[_Item]) -> Iterator[Working]:
    """Processes that share the items; ended in the end, whatever became of them."""
    # Neighbours are alike: shuffled, each process has as much to do.
    shuffled = random.Random(0).sample(items, len(items))
    processes = processes_for(ask, len(items))
    # Spawned: each ends by itself, at the next outcome, when this process is gone.
    context = multiprocessing.get_context("spawn")
    working: Working = {}
    try:
        for index in range(processes):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_run_each, args=(ask, tried, shuffled[index::processes], sender), daemon=True
            )
            process.start()
            working[receiver] = process
            # Held by the process alone, so that its end is seen.
            sender.close()
        yield working
    finally:
        for left in working.values():
            left.kill()
            left.join()


def _received(ready: Any, working: Working) -> tuple[_Item, Outcome]:
    """What a process has sent; it has no more once all of it has come. Raises RunDied."""
    try:
        item, outcome, is_last = ready.recv()
    except EOFError:
        dead = working[ready]
        dead.join()
        message = f"a process of the runs ended with status {dead.exitcode}; is there enough memory?"
        raise RunDied(f"{message} Give smaller loads, or fewer measured_seconds") from None
    if is_last:
        working.pop(ready).join()
    return item, outcome


def _run_each(ask: Ask, tried: Sequence[Point], items: Sequence[_Item], sender: Connection) -> None:
    for number, item in enumerate(items, 1):
        outcome = Run(ask, tried[item.point], ask.loads[item.load], item.seed).outcome()
        sender.send((item, outcome, number == len(items)))


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
