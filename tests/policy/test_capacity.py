"""Concurrency for distributions of lengths: the seed's tables, and the promise of the share, sampled."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.capacity import (
    Lengths,
    context_of_share,
    derive_max_num_seqs,
    growing_within,
    longest_of,
    longest_of_share,
    mean_of,
    sequences_that_fit,
    tokens_held,
)
from policy.kv import BLOCK_TOKENS, GroupedQueryAttention, sequence_bytes
from wire.sketches import bucket_of

LLAMA_70B = GroupedQueryAttention(layers=80, kv_heads=8, head_dim=128)
# The seed's 2 × H100 with an FP8 70B model.
CAPACITY = 200_000
BUDGET = CAPACITY * LLAMA_70B.bytes_per_token("fp16")

lengths = st.dictionaries(st.integers(1, bucket_of(200_000)), st.integers(1, 1000), min_size=1, max_size=20)


def llama_bytes(context_tokens: int) -> int:
    return sequence_bytes([LLAMA_70B], context_tokens, "fp16")


def counted(*seen: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for length in seen:
        counts[bucket_of(length)] = counts.get(bucket_of(length), 0) + 1
    return counts


def test_the_seeds_concurrency_by_context():
    assert sequences_that_fit(CAPACITY, 4_000) == 50
    assert sequences_that_fit(CAPACITY, 32_000) == 6
    assert sequences_that_fit(0, 4_000) == 0
    # max_num_seqs = 128 at 4K would be two and a half times the budget.
    assert 128 / sequences_that_fit(CAPACITY, 4_000) == pytest.approx(2.5, abs=0.1)


def test_equal_lengths_need_no_caution():
    concurrency = derive_max_num_seqs(BUDGET, {bucket_of(4000): 7}, llama_bytes, 990)
    assert len(set(concurrency)) == 1
    assert concurrency.worst_case == CAPACITY // (-(-longest_of(bucket_of(4000)) // BLOCK_TOKENS) * BLOCK_TOKENS)


@pytest.mark.parametrize("filling", [12, 40, 150, 1000])
def test_sequences_that_grow_stay_within_a_cache_in_95_of_100_moments_and_one_more_tenth_would_not(filling: int):
    rng = random.Random(filling)

    def share_of_full(sequences: int) -> float:
        # Contexts between nothing and their end, in means.
        sums = (sum(rng.uniform(0, 2) for _ in range(sequences)) for _ in range(1000))
        return sum(total > 0.9 * filling for total in sums) / 1000

    fits = growing_within(filling, 900)
    assert share_of_full(fits) < 0.08
    assert share_of_full(math.ceil(1.1 * fits)) > 0.08


@given(filling=st.floats(0, 1e6), permille=st.integers(1, 1000))
def test_at_least_one_sequence_may_grow_and_never_more_than_fill_the_cache(filling: float, permille: int):
    assert 1 <= growing_within(filling, permille) <= max(1.0, filling)


def test_a_heavy_tail_lowers_what_the_average_promises():
    """95 % of contexts of 2K and 5 % of 32K have the average of 3.5K alone."""
    tail = {bucket_of(2_000): 95, bucket_of(32_000): 5}
    concurrency = derive_max_num_seqs(BUDGET, tail, llama_bytes, 950)
    assert concurrency == (55, 19, 6)
    assert concurrency.on_average > concurrency.for_share > concurrency.worst_case


def test_a_share_of_all_is_the_worst_case():
    concurrency = derive_max_num_seqs(BUDGET, {bucket_of(100): 999, bucket_of(30_000): 1}, llama_bytes, 1000)
    assert concurrency.for_share == concurrency.worst_case


@given(lengths, st.integers(1, 10**12), st.integers(0, 1000))
def test_a_full_batch_of_the_longest_fits_in_the_worst_case(seen: Lengths, budget: int, share: int):
    concurrency = derive_max_num_seqs(budget, seen, llama_bytes, share)
    largest = max(llama_bytes(longest_of(bucket)) for bucket in seen)
    assert concurrency.worst_case * largest <= budget < (concurrency.worst_case + 1) * largest
    assert concurrency.on_average >= concurrency.for_share >= concurrency.worst_case


@pytest.mark.parametrize("share", [500, 900, 990])
@pytest.mark.parametrize("seed", range(5))
def test_a_full_batch_fits_as_often_as_was_asked(share: int, seed: int):
    drawn = random.Random(seed)
    # Log-normal, as lengths of real requests are.
    seen = counted(*(min(100_000, int(drawn.lognormvariate(7, 1.3))) for _ in range(2000)))
    size = derive_max_num_seqs(BUDGET, seen, llama_bytes, share).for_share
    assert size > 1
    sizes, counts = [llama_bytes(longest_of(bucket)) for bucket in seen], list(seen.values())
    batches = 2000
    fitting = sum(sum(drawn.choices(sizes, counts, k=size)) <= BUDGET for _ in range(batches))
    assert fitting / batches >= share / 1000 - 0.02


@pytest.mark.parametrize("seen", [{}, {5: 0}])
def test_nothing_is_derived_from_nothing(seen: dict[int, int]):
    with pytest.raises(ValueError, match="no length"):
        derive_max_num_seqs(BUDGET, seen, llama_bytes, 950)


def test_sequences_that_take_nothing_are_refused():
    with pytest.raises(ValueError, match="nothing"):
        derive_max_num_seqs(BUDGET, {bucket_of(0): 1}, llama_bytes, 950)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1), st.integers(0, 1000))
def test_a_context_of_a_share_is_exceeded_by_no_more_than_the_rest(requests: list[tuple[int, int]], permille: int):
    """Whatever prompt goes with whatever output."""
    context = context_of_share(
        counted(*(prompt for prompt, _ in requests)), counted(*(output for _, output in requests)), permille
    )
    assert context is not None
    within = sum(prompt + output <= context for prompt, output in requests)
    assert within * 1000 >= permille * len(requests)


def test_what_was_never_seen_has_no_length():
    assert context_of_share({}, counted(5), 990) is None
    assert longest_of_share({}, 990) is None
    assert mean_of({}) is None


def test_means_are_those_of_the_longest_in_each_bucket():
    assert mean_of(counted(10, 10, 31)) == 17
    assert mean_of(counted(1000)) == 1023


def test_littles_law_for_tokens():
    """60,000 tokens a minute that stay 12 s each keep 12,000 alive."""
    assert tokens_held(60_000, 12.0) == 12_000
    assert tokens_held(1, 1.0) == 1
    assert tokens_held(0, 12.0) == 0
