"""Estimates beside what engines measured of themselves: the same model, each engine by its own arguments and GPUs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from controlplane.fleet.models import Engine
from controlplane.fleet.models import Gpu as GpuRow
from controlplane.planner.plan_measured import arguments_of, whole
from policy.kv import Dtype, Sharding
from policy.planning.fit import Serving, fit, usual_allowance
from policy.planning.gpus import Gpu, called
from policy.planning.plan import Ask
from policy.planning.shapes import ModelShape, Quantisation
from policy.planning.start import batched_tokens
from wire.canonical import Document

ENGINES_MAX = 200
_QUANTISED: dict[str, Quantisation] = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4",
    "gptq_marlin": "int4", "mxfp4": "mxfp4",
}  # fmt: skip
Assumed = Literal["gpu", "sharding", "context_tokens", "weights", "kv_cache_dtype", "utilisation"]


class _Known(NamedTuple):
    serving: Serving
    memory_bytes: int
    sharding: Sharding
    assumed: list[Assumed]


def beside(ask: Ask, model: str, sharding: Sharding) -> list[Document]:
    """Engines that serve the model and told their KV cache in tokens, with the estimate for each and its error.

    `sharding`: the plan's. `error_permille`: of what the engine measured; positive where the estimate is too large.
    `assumed`: what the engine did not tell of itself, and the plan's own was taken for.
    """
    rows = Engine.objects.filter(kv_capacity_tokens__gt=0).select_related("node", "pool__model").order_by("name")
    found = [row for row in rows if model in (row.pool.model.name, row.served_model)]
    return [_compared(ask, engine, sharding) for engine in found[:ENGINES_MAX]]


def _compared(ask: Ask, engine: Engine, sharding: Sharding) -> Document:
    measured = engine.kv_capacity_tokens or 0
    known = _known(ask, engine, sharding)
    estimate = _tokens(ask.shape, known)
    return {
        "engine": engine.name,
        "pool": engine.pool.name,
        "tensor_parallel": known.sharding.tensor_parallel,
        "pipeline_parallel": known.sharding.pipeline_parallel,
        "measured_tokens": measured,
        "estimated_tokens": estimate,
        "error_permille": None if estimate is None else round((estimate - measured) * 1000 / measured),
        "assumed": known.assumed,
    }


def _tokens(shape: ModelShape, known: _Known) -> int | None:
    if not shape.can_be_split(known.sharding):
        return None
    return fit(shape, known.serving, known.memory_bytes, known.sharding).tokens


def _known(ask: Ask, engine: Engine, sharding: Sharding) -> _Known:
    arguments, assumed = arguments_of(engine), list[Assumed]()
    gpu = _gpu(engine)
    if gpu is None:
        assumed.append("gpu")
        gpu = ask.machines.gpu
    memory = gpu.memory_bytes
    if arguments:
        # What a command line leaves out is 1.
        ranks, stages = (whole(arguments, f"{name}_parallel_size") or 1 for name in ("tensor", "pipeline"))
        sharding = Sharding(ranks, stages)
    else:
        assumed.append("sharding")
    context = whole(arguments, "max_model_len")
    if context is None:
        assumed.append("context_tokens")
    weights = _QUANTISED.get(arguments.get("quantization", ""))
    if weights is None:
        assumed.append("weights")
    kv_cache = arguments.get("kv_cache_dtype")
    if kv_cache is None:
        assumed.append("kv_cache_dtype")
    utilisation = _permille(arguments.get("gpu_memory_utilization", ""))
    if utilisation is None:
        assumed.append("utilisation")
    serving = Serving(
        weights=weights or ask.weights,
        kv_dtype=ask.kv_dtype if kv_cache is None else _kv_dtype(kv_cache),
        context_tokens=context or ask.context_tokens,
        max_num_batched_tokens=whole(arguments, "max_num_batched_tokens") or batched_tokens(gpu).value,
        allowance=ask.allowance or usual_allowance(memory),
        utilisation_permille=utilisation or ask.utilisation_permille,
        block_tokens=whole(arguments, "block_size") or 16,
    )
    return _Known(serving, memory, sharding, assumed)


def _gpu(engine: Engine) -> Gpu | None:
    """What its node's GPUs are; None where they are not known, or not alike."""
    rows = GpuRow.objects.filter(node=engine.node) if engine.node is not None else GpuRow.objects.none()
    kinds = {gpu for row in rows if (gpu := called(row.model, row.memory_bytes)) is not None}
    return kinds.pop() if len(kinds) == 1 else None


def _kv_dtype(text: str) -> Dtype:
    return "fp8" if text.startswith("fp8") else "bf16"


def _permille(text: str) -> int | None:
    try:
        value = round(float(text) * 1000)
    except (ValueError, OverflowError):
        return None
    return value if 0 < value <= 1000 else None
