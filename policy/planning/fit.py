"""Whether a model fits so many GPUs, and what is left for its KV cache.

The engine profiles its own memory when it starts, and its number wins. Source: seed 1, "KV budget"; vLLM's
`kv_cache_utils.py` for what it asks of a start: room for one sequence of the longest context.
"""

from __future__ import annotations

from typing import NamedTuple

from policy.kv import (
    BLOCK_TOKENS,
    ONE_GPU,
    Dtype,
    GroupedQueryAttention,
    MultiHeadLatentAttention,
    Sharding,
    capacity_tokens,
    kv_budget_bytes,
    longest_context_tokens,
    sequence_bytes,
)
from policy.planning.shapes import ModelShape, Quantisation, weight_bytes

UTILISATION_PERMILLE = 920
# Of a GPU's memory, for what is no weight and no KV cache, where nothing else is known: 4 GB of an 80 GB card.
_ALLOWANCE_PERMILLE, _ALLOWANCE_MAX_BYTES = 50, 4 * 10**9
_ACTIVATIONS_OF_ALLOWANCE_PERMILLE = 600


class Allowance(NamedTuple):
    """What an engine needs on each GPU beside weights and KV cache, in bytes."""

    activations: int
    graphs: int

    @property
    def total(self) -> int:
        return self.activations + self.graphs


def usual_allowance(gpu_memory_bytes: int) -> Allowance:
    """An assumption, as the seed's: the engine measures it."""
    total = min(_ALLOWANCE_MAX_BYTES, gpu_memory_bytes * _ALLOWANCE_PERMILLE // 1000)
    activations = total * _ACTIVATIONS_OF_ALLOWANCE_PERMILLE // 1000
    return Allowance(activations, total - activations)


class Serving(NamedTuple):
    """How an engine is started. `context_tokens`: vLLM's --max-model-len. All sizes are of one GPU."""

    weights: Quantisation
    kv_dtype: Dtype
    context_tokens: int
    max_num_batched_tokens: int
    allowance: Allowance
    utilisation_permille: int = UTILISATION_PERMILLE
    block_tokens: int = BLOCK_TOKENS


class Fit(NamedTuple):
    """One engine over its GPUs. Bytes are of one GPU of the fullest stage; tokens are of the whole engine.

    `tokens`: of context that can live at once, as vLLM counts them: sequences of the longest context × its length.
    `missing_bytes`: what a GPU would have to have more, for the weights and one sequence of the longest context.
    """

    sharding: Sharding
    usable_bytes: int
    weights_bytes: int
    allowance_bytes: int
    kv_budget_bytes: int
    kv_bytes_per_token: int
    state_bytes: int
    longest_sequence_bytes: int
    tokens: int
    longest_context_tokens: int
    missing_bytes: int

    @property
    def fits(self) -> bool:
        return self.missing_bytes == 0


def fit(shape: ModelShape, serving: Serving, gpu_memory_bytes: int, sharding: Sharding = ONE_GPU) -> Fit:
    """Raises: ValueError where the model cannot be split so (`ModelShape.can_be_split`)."""
    weights = weight_bytes(shape, serving.weights, sharding)
    usable = gpu_memory_bytes * serving.utilisation_permille // 1000
    budget = kv_budget_bytes(
        gpu_memory_bytes=gpu_memory_bytes,
        gpu_memory_utilization_permille=serving.utilisation_permille,
        weights_bytes=weights,
        overhead_bytes=serving.allowance.total,
    )
    per_token = sum(group.bytes_per_token(serving.kv_dtype, sharding) for group in shape.kv)
    longest = longest_bytes(shape, serving, sharding, serving.context_tokens)
    fitting = longest_context_tokens(
        shape.kv, budget, serving.context_tokens, serving.kv_dtype, sharding,
        block_tokens=serving.block_tokens, in_flight_tokens=serving.max_num_batched_tokens,
    )  # fmt: skip
    return Fit(
        sharding=sharding,
        usable_bytes=usable,
        weights_bytes=weights,
        allowance_bytes=serving.allowance.total,
        kv_budget_bytes=budget,
        kv_bytes_per_token=per_token,
        state_bytes=sum(group.state_bytes(sharding) for group in shape.kv),
        longest_sequence_bytes=longest,
        tokens=_tokens(shape, serving, budget, per_token, longest),
        longest_context_tokens=fitting,
        missing_bytes=max(0, weights + serving.allowance.total + longest - usable),
    )


def longest_bytes(shape: ModelShape, serving: Serving, sharding: Sharding, context_tokens: int) -> int:
    """What a sequence takes while its prompt is read: a window then holds a whole step beside itself."""
    return sequence_bytes(
        shape.kv, context_tokens, serving.kv_dtype, sharding,
        block_tokens=serving.block_tokens, in_flight_tokens=serving.max_num_batched_tokens,
    )  # fmt: skip


def _tokens(shape: ModelShape, serving: Serving, budget: int, per_token: int, longest: int) -> int:
    if all(isinstance(group, GroupedQueryAttention | MultiHeadLatentAttention) for group in shape.kv):
        return capacity_tokens(budget, per_token, block_tokens=serving.block_tokens)
    return budget * serving.context_tokens // longest
