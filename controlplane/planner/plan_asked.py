"""From what was asked to what policy plans with, and from its plan to a document. Reads no row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from controlplane.core import fields as f
from controlplane.planner.plan_fields import (
    FanOutFields,
    GpusAsked,
    LengthAsked,
    LengthsAsked,
    ModelAsked,
    PlanFields,
    RatesAsked,
)
from policy.kv import Sharding
from policy.planning import lengths as of_lengths
from policy.planning.architectures import shape_of
from policy.planning.config_json import BadConfig
from policy.planning.fan_out import Call, FanOut, fan_out, requests_per_second
from policy.planning.fit import Allowance, usual_allowance
from policy.planning.gpus import GPU_BY_NAME, Gpu, Machines
from policy.planning.known import KNOWN
from policy.planning.plan import Ask, Plan, RatesFrom, make
from policy.planning.shapes import ModelShape
from policy.planning.speed import Rates
from wire.problems import Problem, pointer

T = TypeVar("T")
_DECODE = "decode_tokens_per_second"
Lengths = tuple[dict[int, int], dict[int, int]]


def shape_asked(asked: ModelAsked) -> ModelShape:
    """Raises Refused naming each field of the config.json that is missing or absurd."""
    if asked.known is not None:
        if asked.known not in KNOWN:
            says = f"no such model; there are {', '.join(KNOWN)}; of another give its `config`"
            raise f.refused([Problem("/model/known", "unknown", says)])
        return shape_of(KNOWN[asked.known])
    try:
        return shape_of(asked.config or {})
    except BadConfig as bad:
        at = "/model/config"
        raise f.refused(
            [Problem(at + each.path.rstrip("/"), each.rule, each.message) for each in bad.problems]
        ) from None


def typed_machines(asked: GpusAsked) -> Machines:
    """Of GPUs that are typed or of the table. Raises Refused."""
    if asked.known is not None:
        gpu = GPU_BY_NAME.get(asked.known)
        if gpu is None:
            says = f"no such GPU; there are {', '.join(GPU_BY_NAME)}; of another give its `memory_bytes`"
            raise f.refused([Problem("/gpus/known", "unknown", says)])
    elif asked.memory_bytes is not None:
        gpu = Gpu(
            "typed", asked.memory_bytes, asked.bandwidth_bytes_per_second, asked.bf16_flops, asked.has_fp8, "pcie"
        )
    else:
        raise f.refused([Problem("/gpus/fleet_node", "no_fleet", "without a fleet give `known` or `memory_bytes`")])
    return Machines(gpu, asked.per_node or 1, asked.nodes or 1, asked.link or gpu.link)


def typed_lengths(asked: LengthsAsked) -> Lengths:
    """Raises Refused."""
    if asked.prompt is None or asked.output is None:
        raise f.refused([Problem("/lengths/measured", "no_fleet", "without a fleet give `prompt` and `output`")])
    prompts = _length(asked.prompt, "/lengths/prompt")
    if 0 in prompts:
        raise f.refused([Problem("/lengths/prompt/histogram/0", "range", "a prompt has one token at least")])
    return prompts, _length(asked.output, "/lengths/output")


def _length(asked: LengthAsked, at: str) -> dict[int, int]:
    points = asked.percentiles
    if asked.histogram is not None:
        return of_lengths.histogram({int(length): count for length, count in asked.histogram.items()})
    if asked.mean is None:
        return _or_refused(lambda: of_lengths.from_percentiles(points), at)
    if not points:
        return of_lengths.fixed(asked.mean)
    mean, (permille, length) = asked.mean, next(iter(points.items()))
    return _or_refused(lambda: of_lengths.from_mean(mean, permille, length), at)


def _or_refused(work: Callable[[], T], at: str) -> T:
    try:
        return work()
    except ValueError as error:
        raise f.refused([Problem(at, "range", str(error))]) from None


def planned(
    fields: PlanFields,
    shape: ModelShape,
    machines: Machines,
    lengths: Lengths,
    rates: Rates | None,
    rates_from: RatesFrom,
) -> tuple[Ask, Plan]:
    """Raises Refused where the weights' quantisation is not known, or the model cannot be split as asked."""
    weights = fields.weights or shape.stored
    if weights is None:
        says = "the file's quantization_config is not one that is known here: say what its weights take"
        raise f.refused([Problem("/weights", "required", says)])
    usual = usual_allowance(machines.gpu.memory_bytes)
    sharding = None
    if fields.tensor_parallel is not None or fields.pipeline_parallel is not None:
        sharding = Sharding(fields.tensor_parallel or 1, fields.pipeline_parallel or 1)
    ask = Ask(
        shape=shape,
        machines=machines,
        weights=weights,
        kv_dtype=fields.kv_cache_dtype,
        context_tokens=fields.context_tokens or shape.max_context_tokens,
        prompts=lengths[0],
        outputs=lengths[1],
        utilisation_permille=fields.utilisation_permille,
        allowance=Allowance(
            usual.activations if fields.activation_bytes is None else fields.activation_bytes,
            usual.graphs if fields.graph_bytes is None else fields.graph_bytes,
        ),
        batched_tokens=fields.max_num_batched_tokens,
        share_permille=fields.share_permille,
        sharding=sharding,
        rates=rates,
        rates_from=rates_from,
        acceptable_wait_ms=fields.acceptable_wait_ms,
        tpot_ms=fields.tpot_slo_ms,
    )
    return ask, _or_refused(lambda: make(ask), "/tensor_parallel")


def typed_rates(asked: RatesAsked) -> Rates | None:
    """None where they shall be measured. What writes nothing is bound by no rate of writing."""
    if asked.prefill_tokens_per_second is None:
        return None
    decode = asked.decode_tokens_per_second
    return Rates(asked.prefill_tokens_per_second, math.inf if decode is None else decode)


def fanned_out(fields: FanOutFields, rates: dict[str, Rates]) -> FanOut:
    """Raises Refused for rates of a model that no call names, or that writes and has no rate of it."""
    named = {call.model for call in fields.calls}
    writing = {call.model for call in fields.calls if call.output_tokens}
    missing = [model for model in sorted(writing & rates.keys()) if math.isinf(rates[model].decode_tokens_per_second)]
    f.refuse_if(
        [
            Problem(pointer(pointer("/rates", model), _DECODE), "required", "its calls write: give what a GPU writes")
            for model in missing
        ]
        + [
            Problem(
                pointer("/rates", model), "unknown", f"no call is of this model; there are {', '.join(sorted(named))}"
            )
            for model in fields.rates
            if model not in named
        ]
    )
    requests = requests_per_second(fields.users, fields.requests_per_user_per_hour, fields.peak_permille)
    calls = [Call(**call.model_dump()) for call in fields.calls]
    return fan_out(requests, calls, rates, fields.load_permille)
