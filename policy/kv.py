"""KV cache capacity: how many tokens of context fit, and what may be admitted of them.

The engine profiles its own memory when it starts, and its number wins; these are for planning before it runs.
Source: seed 1, "KV budget" and sections 1 and 10; PagedAttention (Kwon et al., SOSP 2023) for the block size.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

BYTES_BY_DTYPE = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
Dtype = Literal["fp32", "fp16", "bf16", "fp8"]


class GroupedQueryAttention(NamedTuple):
    """Attention with `kv_heads` key/value heads a layer, split over tensor parallel ranks."""

    layers: int
    kv_heads: int
    head_dim: int

    def bytes_per_token(self, dtype: Dtype = "bf16", tensor_parallel: int = 1) -> int:
        """KV bytes a token takes on one GPU. Heads are replicated where there are fewer than ranks."""
        heads_per_rank = max(1, self.kv_heads // tensor_parallel)
        return 2 * self.layers * heads_per_rank * self.head_dim * BYTES_BY_DTYPE[dtype]


class MultiHeadLatentAttention(NamedTuple):
    """DeepSeek's compressed cache: one latent vector a layer, the same on every tensor parallel rank."""

    layers: int
    kv_lora_rank: int
    rope_dim: int

    def bytes_per_token(self, dtype: Dtype = "bf16", tensor_parallel: int = 1) -> int:
        """KV bytes a token takes on one GPU: the same for any `tensor_parallel`, since the latent is replicated."""
        return self.layers * (self.kv_lora_rank + self.rope_dim) * BYTES_BY_DTYPE[dtype]


def kv_budget_bytes(
    *, gpu_memory_bytes: int, gpus: int, gpu_memory_utilization_permille: int, weights_bytes: int, overhead_bytes: int
) -> int:
    """What is left for the KV cache over all `gpus`; 0 when the weights alone do not fit.

    `weights_bytes` and `overhead_bytes` (activations, CUDA graphs) are totals over all GPUs.
    """
    usable = gpu_memory_bytes * gpus * gpu_memory_utilization_permille // 1000
    return max(0, usable - weights_bytes - overhead_bytes)


def capacity_tokens(budget_bytes: int, bytes_per_token: int) -> int:
    """How many tokens of context can be alive at once, over all sequences."""
    return budget_bytes // bytes_per_token


def admissible_tokens(capacity: int, kv_admit_permille: int) -> int:
    """The part of an engine's measured KV tokens that reservations may hold together."""
    return capacity * kv_admit_permille // 1000


def reservation_tokens(prompt_tokens: int, max_tokens: int, sequences: int) -> int:
    """The worst case of one request: its input once, its largest output for each sequence."""
    return prompt_tokens + max_tokens * sequences


def derived_max_num_seqs(admissible: int, average_context_tokens: int) -> int:
    """The concurrency the budget carries at an average context length; 0 when not even one fits."""
    return admissible // average_context_tokens
