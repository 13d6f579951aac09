"""What was measured of a real engine, from which `python -m simulator.calibrate` finds the speed of a modelled one."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field

from wire.problems import Problem, type_problems
from wire.what_if import Arrivals, BadAsk, Lengths, Speed

OBSERVATIONS_MAX = 32
_Tokens = Annotated[int, Meta(ge=1, le=2**40)]
Statistic = Literal["mean", "p50", "p95", "p99"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
# In ms, by statistic.
Latency = dict[Statistic, Annotated[float, Meta(gt=0, le=3_600_000)]]


class Observation(Struct, frozen=True, forbid_unknown_fields=True):
    """One measurement: under what load an engine with these settings had which TTFT and TPOT.

    `held_out`: it does not take part in the fit; its errors tell how well the fit says what it has not seen.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals
    max_num_seqs: _Tokens
    max_num_batched_tokens: _Tokens
    kv_capacity_tokens: _Tokens
    max_model_len_tokens: _Tokens
    ttft_ms: Latency
    tpot_ms: Latency
    replicas: Annotated[int, Meta(ge=1, le=256)] = 1
    measured_seconds: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    name: Annotated[str, Meta(max_length=200)] = ""
    held_out: bool = False


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """`start`: where the search begins; `tries_max` speeds are tried. `fit_to`: the statistics that are fitted; the
    errors of the others are told all the same. Where other work disturbs the engine, its medians alone say how fast it
    is.
    """

    observations: Annotated[list[Observation], Meta(min_length=1, max_length=OBSERVATIONS_MAX)]
    start: Speed = field(default_factory=Speed)
    fit_to: Annotated[list[Statistic], Meta(min_length=1)] = field(default_factory=lambda: list(STATISTICS))
    seeds: Annotated[int, Meta(ge=1, le=16)] = 2
    tries_max: Annotated[int, Meta(ge=1, le=5000)] = 400


def read_json(text: bytes) -> Calibration:
    """Raises BadAsk with every problem."""
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAsk([Problem("/", "malformed", f"this is no JSON: {error}")]) from error
    try:
        calibration = msgspec.convert(document, Calibration)
    except msgspec.ValidationError as error:
        raise BadAsk(type_problems(document, Calibration)) from error
    if problems := _problems(calibration):
        raise BadAsk(problems)
    return calibration


def _problems(calibration: Calibration) -> list[Problem]:
    found = []
    if all(each.held_out for each in calibration.observations):
        found.append(Problem("/observations", "required", "all are held out; leave one to fit to"))
    wanted = set(calibration.fit_to)
    if not any(wanted & {*each.ttft_ms, *each.tpot_ms} for each in calibration.observations if not each.held_out):
        found.append(Problem("/fit_to", "required", "none of these was measured; name one that was"))
    for index, each in enumerate(calibration.observations):
        path = f"/observations/{index}"
        if not each.ttft_ms and not each.tpot_ms:
            found.append(Problem(f"{path}/ttft_ms", "required", "give a TTFT or a TPOT that was measured"))
        if not each.arrivals.mean_per_second:
            found.append(Problem(f"{path}/arrivals", "required", "nothing arrives; give rate_per_second or minutes"))
        if each.max_num_batched_tokens < each.max_num_seqs:
            message = f"no engine starts with less than max_num_seqs, {each.max_num_seqs}"
            found.append(Problem(f"{path}/max_num_batched_tokens", "range", message))
        if each.max_model_len_tokens > each.kv_capacity_tokens // 16 * 16:
            message = f"no engine starts with less KV cache than max_model_len_tokens, {each.max_model_len_tokens}"
            found.append(Problem(f"{path}/kv_capacity_tokens", "range", message))
    return found
