"""KV cache arithmetic against the seed's worked examples and the table of known models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.kv import (
    Dtype,
    GroupedQueryAttention,
    Layers,
    MultiHeadLatentAttention,
    Sharding,
    SlidingWindowAttention,
    StateSpace,
    admissible_tokens,
    capacity_tokens,
    kv_budget_bytes,
    longest_context_tokens,
    reservation_tokens,
    sequence_bytes,
)

KIB, MIB, GIB, GB = 2**10, 2**20, 2**30, 10**9
LLAMA_70B = GroupedQueryAttention(layers=80, kv_heads=8, head_dim=128)
DEEPSEEK_V3 = MultiHeadLatentAttention(layers=61, kv_lora_rank=512, rope_dim=64)
GEMMA_3_27B: Layers = [GroupedQueryAttention(10, 16, 128), SlidingWindowAttention(52, 16, 128, 1024)]
GPT_OSS_120B: Layers = [GroupedQueryAttention(18, 8, 64), SlidingWindowAttention(18, 8, 64, 128)]
# A gated delta net keeps 32 value heads of 128 × 128, and 3 steps of a convolution over 2 × 16 + 32 heads of 128.
QWEN3_NEXT_80B: Layers = [GroupedQueryAttention(12, 2, 256), StateSpace(36, 32 * 128 * 128 + 3 * (2 * 16 + 32) * 128)]


def test_the_seeds_llama_3_70b_takes_327680_bytes_a_token():
    assert LLAMA_70B.bytes_per_token("fp16") == 327_680
    assert LLAMA_70B.bytes_per_token("fp8") == LLAMA_70B.bytes_per_token("int8") == 327_680 // 2
    assert sequence_bytes([LLAMA_70B], 128 * 1024, "fp16") == 40 * GIB
    without_grouping = LLAMA_70B._replace(kv_heads=64)
    assert sequence_bytes([without_grouping], 128 * 1024, "fp16") == 320 * GIB


def test_the_seeds_two_h100_hold_about_200000_tokens():
    """80 GB each at 0.90, half of 70 GB of FP8 weights each; 4 GB each for activations and CUDA graphs are assumed."""
    budget = kv_budget_bytes(
        gpu_memory_bytes=80 * GB, gpu_memory_utilization_permille=900, weights_bytes=35 * GB, overhead_bytes=4 * GB
    )
    assert budget == 33 * GB
    pair = Sharding(tensor_parallel=2)
    capacity = capacity_tokens(budget, LLAMA_70B.bytes_per_token("fp16", pair))
    assert capacity == 201_408
    assert longest_context_tokens([LLAMA_70B], budget, 10**6, "fp16", pair) == capacity
    # Cut by layers instead, the pair holds as much.
    assert capacity_tokens(budget, LLAMA_70B.bytes_per_token("fp16", Sharding(1, 2))) == capacity
    # An FP8 cache doubles it.
    assert capacity_tokens(budget, LLAMA_70B.bytes_per_token("fp8", pair)) == 402_832


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "kib"),
    [
        pytest.param(32, 8, 128, 128, id="Llama-3.x-8B, Mistral-7B, Mixtral-8x7B"),
        pytest.param(80, 8, 128, 320, id="Llama-3.x-70B, Qwen2.5-72B"),
        pytest.param(126, 8, 128, 504, id="Llama-3.1-405B"),
        pytest.param(28, 4, 128, 56, id="Qwen2.5-7B"),
        pytest.param(64, 8, 128, 256, id="Qwen2.5-32B, Qwen3-32B"),
        pytest.param(94, 4, 128, 188, id="Qwen3-235B"),
        pytest.param(40, 8, 128, 160, id="Mistral-Small-24B"),
    ],
)
def test_known_models_take_what_they_are_known_to_take(layers: int, kv_heads: int, head_dim: int, kib: int):
    assert GroupedQueryAttention(layers, kv_heads, head_dim).bytes_per_token("bf16") == kib * KIB


def test_deepseek_v3_takes_the_same_on_every_rank():
    assert DEEPSEEK_V3.bytes_per_token("bf16") / KIB == pytest.approx(68.6, abs=0.05)
    assert DEEPSEEK_V3.bytes_per_token("bf16", Sharding(8)) == DEEPSEEK_V3.bytes_per_token("bf16")


@pytest.mark.parametrize(
    ("model", "full_kib", "windowed_kib", "window"),
    [pytest.param(GEMMA_3_27B, 80, 416, 1024, id="Gemma-3-27B"), pytest.param(GPT_OSS_120B, 36, 36, 128, id="gpt-oss")],
)
def test_a_window_costs_nothing_beyond_itself(model: Layers, full_kib: int, windowed_kib: int, window: int):
    within, beyond = window // 2, window * 100
    assert sequence_bytes(model, within) == within * (full_kib + windowed_kib) * KIB
    assert sequence_bytes(model, beyond) == (beyond * full_kib + window * windowed_kib) * KIB


def test_a_window_holds_what_is_in_flight_beside_itself():
    window = [SlidingWindowAttention(52, 16, 128, 1024)]
    assert sequence_bytes(window, 100_000, in_flight_tokens=1025) == 2 * sequence_bytes(window, 100_000)
    assert sequence_bytes(window, 100, in_flight_tokens=1025) == sequence_bytes(window, 100)


def test_qwen3_next_takes_24_kib_a_token_and_a_state_of_37_7_mib_a_sequence():
    state = sequence_bytes(QWEN3_NEXT_80B, 0)
    assert state / MIB == pytest.approx(37.7, abs=0.05)
    assert sequence_bytes(QWEN3_NEXT_80B, 16_000) == state + 16_000 * 24 * KIB
    # A cache of smaller numbers makes the state no smaller; ranks share it.
    assert sequence_bytes(QWEN3_NEXT_80B, 0, "fp8") == state
    assert sequence_bytes(QWEN3_NEXT_80B, 0, sharding=Sharding(2)) == state // 2


def test_heads_are_split_over_ranks_and_replicated_beyond():
    on_all_ranks = [LLAMA_70B.bytes_per_token("fp16", Sharding(ranks)) * ranks for ranks in (1, 2, 8, 16)]
    assert on_all_ranks == [327_680, 327_680, 327_680, 2 * 327_680]


def test_heads_that_ranks_cannot_share_evenly_are_refused():
    with pytest.raises(ValueError, match=r"8 key/value heads .* 3 ranks"):
        LLAMA_70B.bytes_per_token("fp16", Sharding(3))


def test_the_fullest_stage_of_a_pipeline_decides():
    assert Sharding(2, 3).gpus == 6
    assert GroupedQueryAttention(80, 8, 128).bytes_per_token("fp16", Sharding(1, 3)) == 27 * 2 * 8 * 128 * 2


def test_blocks_are_taken_whole():
    model = [LLAMA_70B]
    assert sequence_bytes(model, 1) == sequence_bytes(model, 16) == sequence_bytes(model, 17) // 2
    one_block = 16 * 327_680
    assert capacity_tokens(one_block * 5 - 1, 327_680) == 4 * 16
    assert capacity_tokens(one_block * 5 - 1, 327_680, block_tokens=1) == 5 * 16 - 1


def test_weights_that_do_not_fit_leave_nothing():
    budget = kv_budget_bytes(
        gpu_memory_bytes=80 * GB, gpu_memory_utilization_permille=900, weights_bytes=140 * GB, overhead_bytes=0
    )
    assert budget == capacity_tokens(budget, 327_680) == longest_context_tokens([LLAMA_70B], budget, 8192) == 0


models = st.lists(
    st.one_of(
        st.builds(GroupedQueryAttention, st.integers(1, 100), st.sampled_from([1, 2, 4, 8, 16]), st.just(128)),
        st.builds(SlidingWindowAttention, st.integers(1, 100), st.just(8), st.just(64), st.integers(1, 5000)),
        st.builds(MultiHeadLatentAttention, st.integers(1, 100), st.just(512), st.just(64)),
        st.builds(StateSpace, st.integers(1, 100), st.integers(1, 10**6)),
    ),
    min_size=1,
    max_size=3,
)
dtypes = st.sampled_from(["fp32", "fp16", "bf16", "fp8", "int8"])
shardings = st.builds(Sharding, st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 8))


@given(models, st.integers(0, 10**12), st.integers(0, 200_000), dtypes, shardings)
def test_the_longest_context_fits_and_one_token_more_does_not(
    model: Layers, budget: int, most: int, dtype: Dtype, sharding: Sharding
):
    longest = longest_context_tokens(model, budget, most, dtype, sharding)
    assert longest == 0 or sequence_bytes(model, longest, dtype, sharding) <= budget
    assert longest == most or sequence_bytes(model, longest + 1, dtype, sharding) > budget


@given(models, st.integers(0, 200_000), dtypes, shardings)
def test_no_sharding_makes_the_whole_take_less(model: Layers, context: int, dtype: Dtype, sharding: Sharding):
    alone, sharded = sequence_bytes(model, context, dtype), sequence_bytes(model, context, dtype, sharding)
    assert sharded <= alone <= sharded * sharding.gpus


@given(st.integers(0, 10**9), st.integers(0, 1000))
def test_what_may_be_admitted_is_the_share_of_the_capacity_rounded_down(capacity: int, permille: int):
    admissible = admissible_tokens(capacity, permille)
    assert admissible <= capacity
    assert admissible * 1000 <= capacity * permille < (admissible + 1) * 1000


def test_a_reservation_counts_the_input_once_and_the_output_a_sequence():
    assert reservation_tokens(300, 100, 4) == 700
