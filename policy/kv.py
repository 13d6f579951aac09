"""KV cache of a model: what a sequence takes of a GPU, and how long one may grow.

A model is a sequence of groups of equal layers, since hybrid models mix kinds: `[GroupedQueryAttention(10, 16, 128),
SlidingWindowAttention(52, 16, 128, 1024)]`. The engine profiles its own memory when it starts, and its number wins;
these are for planning before it runs. Source: seed 1, "KV budget" and sections 1 and 10; PagedAttention (Kwon et al.,
SOSP 2023) for blocks; vLLM's KV cache specifications for windows, latents and states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Dtype = Literal["fp32", "fp16", "bf16", "fp8", "int8"]
BYTES_BY_DTYPE: dict[Dtype, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# vLLM's block of tokens.
BLOCK_TOKENS = 16


class Sharding(NamedTuple):
    """Over how many GPUs one engine is spread: within each layer (tensor), and by layers (pipeline)."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    def layers_of_fullest_stage(self, layers: int) -> int:
        """Every stage holds every token of its own layers, so the one with most layers is full first."""
        return -(-layers // self.pipeline_parallel)


ONE_GPU = Sharding()


class GroupedQueryAttention(NamedTuple):
    """Attention with `kv_heads` key/value heads a layer, split over tensor parallel ranks."""

    layers: int
    kv_heads: int
    head_dim: int

    def bytes_per_token(self, dtype: Dtype = "bf16", sharding: Sharding = ONE_GPU) -> int:
        """KV bytes that a token takes on one GPU of the fullest stage.

        Heads are replicated where there are fewer than ranks. Raises: ValueError where they cannot be shared out
        evenly, which no engine serves.
        """
        ranks = sharding.tensor_parallel
        if self.kv_heads % ranks and ranks % self.kv_heads:
            raise ValueError(f"{self.kv_heads} key/value heads cannot be shared out to {ranks} ranks evenly")
        layers = sharding.layers_of_fullest_stage(self.layers)
        return 2 * layers * max(1, self.kv_heads // ranks) * self.head_dim * BYTES_BY_DTYPE[dtype]

    def held_tokens(self, context_tokens: int, in_flight_tokens: int) -> int:
        return context_tokens

    def state_bytes(self, sharding: Sharding) -> int:
        return 0


class SlidingWindowAttention(NamedTuple):
    """Attention to the last `window_tokens`: what lies beyond takes no memory, however long the context grows."""

    layers: int
    kv_heads: int
    head_dim: int
    window_tokens: int

    def bytes_per_token(self, dtype: Dtype = "bf16", sharding: Sharding = ONE_GPU) -> int:
        """As with grouped query attention, for each token within the window."""
        return GroupedQueryAttention(self.layers, self.kv_heads, self.head_dim).bytes_per_token(dtype, sharding)

    def held_tokens(self, context_tokens: int, in_flight_tokens: int) -> int:
        return min(self.window_tokens - 1 + in_flight_tokens, context_tokens)

    def state_bytes(self, sharding: Sharding) -> int:
        return 0


class MultiHeadLatentAttention(NamedTuple):
    """DeepSeek's compressed cache: one latent vector a layer, the same on every tensor parallel rank."""

    layers: int
    kv_lora_rank: int
    rope_dim: int

    def bytes_per_token(self, dtype: Dtype = "bf16", sharding: Sharding = ONE_GPU) -> int:
        """KV bytes that a token takes on one GPU: the latent is replicated, so tensor parallelism saves nothing."""
        layers = sharding.layers_of_fullest_stage(self.layers)
        return layers * (self.kv_lora_rank + self.rope_dim) * BYTES_BY_DTYPE[dtype]

    def held_tokens(self, context_tokens: int, in_flight_tokens: int) -> int:
        return context_tokens

    def state_bytes(self, sharding: Sharding) -> int:
        return 0


class StateSpace(NamedTuple):
    """Layers with a state of fixed size a sequence (Mamba, gated delta net), `state_elements` a layer.

    The state is split over tensor parallel ranks. It has a type of its own: a cache in FP8 leaves it as it is.
    """

    layers: int
    state_elements: int
    state_dtype: Dtype = "bf16"

    def bytes_per_token(self, dtype: Dtype = "bf16", sharding: Sharding = ONE_GPU) -> int:
        return 0

    def held_tokens(self, context_tokens: int, in_flight_tokens: int) -> int:
        return 0

    def state_bytes(self, sharding: Sharding) -> int:
        """Bytes that a sequence of any length takes on one GPU of the fullest stage."""
        elements = -(-self.state_elements // sharding.tensor_parallel)
        return sharding.layers_of_fullest_stage(self.layers) * elements * BYTES_BY_DTYPE[self.state_dtype]


Layers = Sequence[GroupedQueryAttention | SlidingWindowAttention | MultiHeadLatentAttention | StateSpace]


def sequence_bytes(
    model: Layers,
    context_tokens: int,
    dtype: Dtype = "bf16",
    sharding: Sharding = ONE_GPU,
    *,
    block_tokens: int = BLOCK_TOKENS,
    in_flight_tokens: int = 1,
) -> int:
    """Bytes that one sequence of `context_tokens` takes on one GPU of the fullest stage, in whole blocks.

    `in_flight_tokens`: tokens of the sequence that one step computes, which a window holds beside itself: 1 while it
    decodes, up to max_num_batched_tokens while its prompt is read.
    """
    total = 0
    for group in model:
        held = group.held_tokens(context_tokens, in_flight_tokens)
        blocks = -(-held // block_tokens)
        total += blocks * block_tokens * group.bytes_per_token(dtype, sharding) + group.state_bytes(sharding)
    return total


def longest_context_tokens(
    model: Layers,
    budget_bytes: int,
    model_max_tokens: int,
    dtype: Dtype = "bf16",
    sharding: Sharding = ONE_GPU,
    *,
    block_tokens: int = BLOCK_TOKENS,
    in_flight_tokens: int = 1,
) -> int:
    """The longest context that one sequence can have alone within `budget_bytes` of each GPU; 0 where none fits.

    `model_max_tokens` bounds it, since windows and states alone would let it grow for ever.
    """
    low, high = 0, model_max_tokens
    while low < high:
        middle = (low + high + 1) // 2
        needed = sequence_bytes(
            model, middle, dtype, sharding, block_tokens=block_tokens, in_flight_tokens=in_flight_tokens
        )
        low, high = (middle, high) if needed <= budget_bytes else (low, middle - 1)
    return low


def kv_budget_bytes(
    *, gpu_memory_bytes: int, gpu_memory_utilization_permille: int, weights_bytes: int, overhead_bytes: int
) -> int:
    """What one GPU has left for the KV cache; 0 when the weights alone do not fit.

    All are of one GPU: `weights_bytes` its part of the weights, `overhead_bytes` activations and CUDA graphs.
    """
    usable = gpu_memory_bytes * gpu_memory_utilization_permille // 1000
    return max(0, usable - weights_bytes - overhead_bytes)


def capacity_tokens(budget_bytes: int, bytes_per_token: int, *, block_tokens: int = BLOCK_TOKENS) -> int:
    """How many tokens of context can be alive at once, over all sequences, in whole blocks.

    For models whose layers all grow with the context; both sizes are of one GPU.
    """
    return budget_bytes // (bytes_per_token * block_tokens) * block_tokens


def admissible_tokens(capacity: int, kv_admit_permille: int) -> int:
    """The part of an engine's measured KV tokens that reservations may hold together."""
    return capacity * kv_admit_permille // 1000


def reservation_tokens(prompt_tokens: int, max_tokens: int, sequences: int) -> int:
    """The worst case of one request: its input once, its largest output for each sequence."""
    return prompt_tokens + max_tokens * sequences
