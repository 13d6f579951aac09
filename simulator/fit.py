"""The speed of a modelled engine that measured latencies lead to, and how far off it is from each of them.

Engines are compared by what users see: TTFT and TPOT of whole runs, at the load and the lengths under which they were
measured. The search goes along one parameter at a time, in steps that halve (pattern search: Hooke and Jeeves, 1961):
runs in virtual time have no derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from simulator.what_if_run import Outcome, Run
from wire.calibration import Calibration, Observation
from wire.what_if import Ask, Point, Slo, Speed

PARAMETERS = Speed.__struct_fields__
# Below these a parameter says nothing: it is as good as 0.
FLOOR_SECONDS = 1e-9
STEP_FIRST, STEP_LAST = 0.8, 0.02
# What the tail tells is mostly chance.
WEIGHTS = {"mean": 1.0, "p50": 1.0, "p95": 0.7, "p99": 0.2}
# So little that only what the measurements leave open is decided by it: the least of several that fit as well.
THRIFT = 1e-4
Told = Callable[[int, float], None]


def fit(calibration: Calibration, told: Told) -> dict[str, Any]:
    """The speed with the least error in what was measured and not held out, and each error.

    `told` hears of each round: how many speeds were tried, the error so far (root of the mean square of logarithms).
    """
    fitted = [each for each in calibration.observations if not each.held_out]
    tried = 0

    def error_of(speed: Speed) -> float:
        nonlocal tried
        tried += 1
        return _error(speed, fitted, calibration) + THRIFT * _size(speed, calibration.start)

    best, error = calibration.start, error_of(calibration.start)
    step = STEP_FIRST
    while step >= STEP_LAST and tried < calibration.tries_max:
        better = _around(best, error, step, error_of)
        if better is None:
            step /= 2
        else:
            further = _further(best, better[0])
            best, error = better
            if (there := error_of(further)) < error:
                best, error = further, there
        told(tried, math.sqrt(error))
    return {
        "speed": msgspec.to_builtins(best),
        "errors": [
            found
            for index, each in enumerate(calibration.observations)
            for found in _errors(index, best, each, calibration.seeds)
        ],
        "tried": tried,
    }


def _around(speed: Speed, error: float, step: float, error_of: Callable[[Speed], float]) -> tuple[Speed, float] | None:
    """The better speed a step away along each parameter in turn; None where there is none."""
    found = None
    for name in PARAMETERS:
        for factor in (math.exp(step), math.exp(-step)):
            value = max(FLOOR_SECONDS, getattr(speed, name)) * factor
            tried = msgspec.structs.replace(speed, **{name: min(value, 10.0)})
            if (there := error_of(tried)) < error:
                speed, error = tried, there
                found = speed, error
                break
    return found


def _further(before: Speed, after: Speed) -> Speed:
    """As far again, in the direction that was better: parameters that hang together move together."""
    moved = {name: getattr(after, name) ** 2 / max(FLOOR_SECONDS, getattr(before, name)) for name in PARAMETERS}
    return Speed(**{name: min(value, 10.0) for name, value in moved.items()})


def _size(speed: Speed, start: Speed) -> float:
    shares: list[float] = [getattr(speed, name) / max(FLOOR_SECONDS, getattr(start, name)) for name in PARAMETERS]
    return sum(shares) / len(shares)


def _error(speed: Speed, observations: list[Observation], calibration: Calibration) -> float:
    """The weighted mean square of the logarithm of simulated by measured."""
    total, weight = 0.0, 0.0
    for observation in observations:
        simulated = simulate(speed, observation, calibration.seeds)
        for metric, name, measured in _measured(observation):
            if name not in calibration.fit_to:
                continue
            found = simulated[metric].get(name)
            # Nothing ended: as wrong as a hundred times.
            apart: float = math.log(max(found, 1e-6) / measured) if found else math.log(100)
            total += WEIGHTS[name] * apart * apart
            weight += WEIGHTS[name]
    return total / weight


def _errors(index: int, speed: Speed, observation: Observation, seeds: int) -> Iterator[dict[str, Any]]:
    simulated = simulate(speed, observation, seeds)
    for metric, name, measured in _measured(observation):
        found = simulated[metric].get(name)
        yield {
            "observation": observation.name or str(index + 1),
            "held_out": observation.held_out,
            "metric": metric,
            "statistic": name,
            "measured_ms": measured,
            "simulated_ms": found,
            "error": None if found is None else found / measured - 1,
        }


def simulate(speed: Speed, observation: Observation, seeds: int) -> dict[str, dict[str, float]]:
    """TTFT and TPOT in ms as an engine of this speed would have under what the observation says, mean of the seeds."""
    ask = Ask(
        prompt_tokens=observation.prompt_tokens,
        output_tokens=observation.output_tokens,
        arrivals=observation.arrivals,
        slo=Slo(e2e_ms=3_600_000),
        max_num_seqs=[observation.max_num_seqs],
        max_num_batched_tokens=[observation.max_num_batched_tokens],
        max_model_len_tokens=observation.max_model_len_tokens,
        speed=speed,
        warm_up_seconds=0,
        measured_seconds=observation.measured_seconds,
    )
    point = Point(
        observation.max_num_seqs,
        observation.max_num_batched_tokens,
        observation.replicas,
        observation.kv_capacity_tokens,
        None,
    )
    outcomes = [Run(ask, point, 1.0, seed).outcome() for seed in range(seeds)]
    return {"ttft": _mean_ms(outcomes, "ttft"), "tpot": _mean_ms(outcomes, "tpot")}


def _mean_ms(outcomes: list[Outcome], metric: str) -> dict[str, float]:
    seen = [quantiles for outcome in outcomes if (quantiles := getattr(outcome, metric))]
    return {name: 1000 * sum(each[name] for each in seen) / len(seen) for name in (seen[0] if seen else ())}


def _measured(observation: Observation) -> Iterator[tuple[str, str, float]]:
    for metric, statistics in (("ttft", observation.ttft_ms), ("tpot", observation.tpot_ms)):
        for name, value in statistics.items():
            yield metric, name, value
