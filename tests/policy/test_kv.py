"""KV cache arithmetic against the seed's worked examples and the table of known models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.kv import (
    GroupedQueryAttention,
    MultiHeadLatentAttention,
    admissible_tokens,
    capacity_tokens,
    derived_max_num_seqs,
    kv_budget_bytes,
    reservation_tokens,
)

GIB, GB = 2**30, 10**9
LLAMA_70B = GroupedQueryAttention(layers=80, kv_heads=8, head_dim=128)


def test_the_seeds_llama_3_70b_takes_327680_bytes_a_token():
    assert LLAMA_70B.bytes_per_token("fp16") == 327_680
    assert LLAMA_70B.bytes_per_token("fp8") == 327_680 // 2
    assert 128 * 1024 * LLAMA_70B.bytes_per_token("fp16") == 40 * GIB
    without_grouping = LLAMA_70B._replace(kv_heads=64)
    assert 128 * 1024 * without_grouping.bytes_per_token("fp16") == 320 * GIB


def test_the_seeds_two_h100_hold_about_200000_tokens():
    """160 GB at 0.90 and 70 GB of FP8 weights; 8 GB for activations and CUDA graphs are assumed."""
    budget = kv_budget_bytes(
        gpu_memory_bytes=80 * GB,
        gpus=2,
        gpu_memory_utilization_permille=900,
        weights_bytes=70 * GB,
        overhead_bytes=8 * GB,
    )
    capacity = capacity_tokens(budget, LLAMA_70B.bytes_per_token("fp16"))
    assert 195_000 <= capacity <= 205_000
    # max_num_seqs = 128 would be two and a half times the budget at 4K; 32K leave an eighth of the concurrency.
    assert derived_max_num_seqs(capacity, 4_000) == pytest.approx(128 / 2.5, abs=2)
    assert derived_max_num_seqs(capacity, 32_000) == 6


@pytest.mark.parametrize(
    ("model", "kib"),
    [
        (GroupedQueryAttention(32, 8, 128), 128),
        (GroupedQueryAttention(80, 8, 128), 320),
        (GroupedQueryAttention(126, 8, 128), 504),
        (GroupedQueryAttention(28, 4, 128), 56),
        (GroupedQueryAttention(64, 8, 128), 256),
        (GroupedQueryAttention(94, 4, 128), 188),
        (GroupedQueryAttention(40, 8, 128), 160),
        (GroupedQueryAttention(10, 16, 128), 80),
        (GroupedQueryAttention(52, 16, 128), 416),
        (GroupedQueryAttention(18, 8, 64), 36),
        (GroupedQueryAttention(12, 2, 256), 24),
    ],
)
def test_known_models_take_what_they_are_known_to_take(model: GroupedQueryAttention, kib: int):
    assert model.bytes_per_token("bf16") == kib * 1024


def test_deepseek_v3_takes_the_same_on_every_rank():
    latent = MultiHeadLatentAttention(layers=61, kv_lora_rank=512, rope_dim=64)
    assert latent.bytes_per_token("bf16") / 1024 == pytest.approx(68.6, abs=0.05)
    assert latent.bytes_per_token("bf16", tensor_parallel=8) == latent.bytes_per_token("bf16")


def test_heads_are_split_over_ranks_and_replicated_beyond():
    assert [LLAMA_70B.bytes_per_token("fp16", ranks) * ranks // 327_680 for ranks in (1, 2, 8, 16)] == [1, 1, 1, 2]


def test_weights_that_do_not_fit_leave_nothing():
    budget = kv_budget_bytes(
        gpu_memory_bytes=80 * GB,
        gpus=1,
        gpu_memory_utilization_permille=900,
        weights_bytes=140 * GB,
        overhead_bytes=0,
    )
    assert (budget, capacity_tokens(budget, 327_680), derived_max_num_seqs(0, 4096)) == (0, 0, 0)


@given(st.integers(0, 10**9), st.integers(0, 1000))
def test_what_may_be_admitted_is_the_share_of_the_capacity_rounded_down(capacity: int, permille: int):
    admissible = admissible_tokens(capacity, permille)
    assert admissible <= capacity
    assert admissible * 1000 <= capacity * permille < (admissible + 1) * 1000


def test_a_reservation_counts_the_input_once_and_the_output_a_sequence():
    assert reservation_tokens(300, 100, 4) == 700
