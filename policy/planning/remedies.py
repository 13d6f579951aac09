"""What would make a plan fit that does not: each change tried by itself, then the two that cost least together."""

from __future__ import annotations

from typing import Literal, NamedTuple

from policy.kv import Sharding
from policy.planning.fit import Serving, fit
from policy.planning.gpus import Machines
from policy.planning.parallel import choose
from policy.planning.shapes import ModelShape, Quantisation

Change = Literal["weights", "kv_cache", "context", "gpus", "weights_and_kv_cache"]
# From the most bits to the fewest.
_SMALLER: dict[Quantisation, tuple[Quantisation, ...]] = {
    "bf16": ("fp8", "int4"), "fp8": ("int4",), "int4": (), "mxfp4": ()
}  # fmt: skip
_GPUS_MAX = 64
_CONTEXT_STEP_TOKENS, _CONTEXT_MIN_TOKENS = 1024, 1024


class Remedy(NamedTuple):
    """A change after which the plan fits; `value` is what to set: a quantisation, tokens, or GPUs a machine."""

    change: Change
    value: str
    says: str


def remedies(shape: ModelShape, serving: Serving, machines: Machines) -> list[Remedy]:
    """Of each kind the smallest change that is enough; empty where none is."""
    found = [_weights(shape, serving, machines), _kv_cache(shape, serving, machines)]
    if not any(found):
        found.append(_both(shape, serving, machines))
    found += [_context(shape, serving, machines), _gpus(shape, serving, machines)]
    return [each for each in found if each is not None]


def _fits(shape: ModelShape, serving: Serving, machines: Machines) -> bool:
    return choose(shape, serving, machines).option is not None


def _weights(shape: ModelShape, serving: Serving, machines: Machines) -> Remedy | None:
    for smaller in _SMALLER[serving.weights]:
        if _fits(shape, serving._replace(weights=smaller), machines):
            return Remedy("weights", smaller, f"weights in {smaller} instead of {serving.weights}")
    return None


def _kv_cache(shape: ModelShape, serving: Serving, machines: Machines) -> Remedy | None:
    if serving.kv_dtype != "fp8" and _fits(shape, serving._replace(kv_dtype="fp8"), machines):
        return Remedy("kv_cache", "fp8", "a KV cache in fp8, which halves it; try its accuracy on long contexts first")
    return None


def _both(shape: ModelShape, serving: Serving, machines: Machines) -> Remedy | None:
    for smaller in _SMALLER[serving.weights]:
        if _fits(shape, serving._replace(weights=smaller, kv_dtype="fp8"), machines):
            says = f"weights in {smaller} and a KV cache in fp8 together"
            return Remedy("weights_and_kv_cache", f"{smaller}+fp8", says)
    return None


def _context(shape: ModelShape, serving: Serving, machines: Machines) -> Remedy | None:
    """The longest context, in whole steps, with which something fits."""
    low, high = 0, serving.context_tokens // _CONTEXT_STEP_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        shorter = serving._replace(context_tokens=middle * _CONTEXT_STEP_TOKENS)
        low, high = (middle, high) if _fits(shape, shorter, machines) else (low, middle - 1)
    tokens = low * _CONTEXT_STEP_TOKENS
    if not _CONTEXT_MIN_TOKENS <= tokens < serving.context_tokens:
        return None
    says = f"contexts of {tokens} tokens at most (--max-model-len) instead of {serving.context_tokens}"
    return Remedy("context", str(tokens), says)


def _gpus(shape: ModelShape, serving: Serving, machines: Machines) -> Remedy | None:
    """The fewest GPUs of this kind in one machine: by tensor parallelism where they are linked, else by a pipeline."""
    counts = range(machines.gpus_per_node + 1, _GPUS_MAX + 1)
    tensor, pipeline = [Sharding(count) for count in counts], [Sharding(1, count) for count in counts]
    for sharding in (*tensor, *pipeline) if machines.link == "nvlink" else (*pipeline, *tensor):
        if shape.can_be_split(sharding) and fit(shape, serving, machines.gpu.memory_bytes, sharding).fits:
            how = "tensor parallelism" if sharding.tensor_parallel > 1 else "a pipeline"
            says = f"{sharding.gpus} GPUs of this kind for one engine, by {how}"
            return Remedy("gpus", str(sharding.gpus), says)
    return None
