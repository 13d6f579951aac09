"""Lengths as people know them become counts as gateways measure them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.capacity import longest_of
from policy.planning.lengths import PARTS, at_most, contexts, fixed, from_mean, from_percentiles, histogram, mean_tokens
from wire.sketches import bucket_of, lowest_of, middle_of, quantile

counts = st.dictionaries(st.integers(1, 20_000).map(bucket_of), st.integers(1, 1000), min_size=1, max_size=20)


def test_percentiles_come_out_as_they_went_in() -> None:
    made = from_percentiles({500: 1000, 900: 4000, 990: 30_000})
    for permille, length in {500: 1000, 900: 4000, 990: 30_000}.items():
        assert quantile(made, permille) == pytest.approx(length, rel=0.05)
    assert sum(made.values()) == PARTS


def test_a_mean_and_a_percentile_come_out_as_they_went_in() -> None:
    made = from_mean(1500, 950, 5000)
    assert mean_tokens(made) == pytest.approx(1500, rel=0.06)
    assert quantile(made, 950) == pytest.approx(5000, rel=0.05)


def test_a_mean_and_the_median_below_it_come_out_as_they_went_in() -> None:
    made = from_mean(1500, 500, 900)
    assert mean_tokens(made) == pytest.approx(1500, rel=0.06)
    assert quantile(made, 500) == pytest.approx(900, rel=0.05)
    assert from_mean(1500, 500, 1500) == {bucket_of(1500): PARTS}
    with pytest.raises(ValueError, match="p50 must not be above the mean"):
        from_mean(1500, 500, 1600)


@pytest.mark.parametrize(("mean", "length"), [(1000, 900), (1000, 4000)])
def test_a_mean_that_no_such_curve_has_is_refused(mean: float, length: int) -> None:
    with pytest.raises(ValueError, match=r"from 1 to 3\.9 times the mean"):
        from_mean(mean, 950, length)


@pytest.mark.parametrize(
    ("points", "says"), [({950: 10}, "two percentiles"), ({}, "two percentiles"), ({500: 10, 950: 9}, "shorter")]
)
def test_percentiles_that_say_too_little_are_refused(points: dict[int, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_percentiles(points)


def test_a_histogram_is_counted_by_bucket() -> None:
    assert histogram({10: 3, 1000: 1, 1001: 1}) == {bucket_of(10): 3, bucket_of(1000): 2}


@given(counts, counts)
def test_the_mean_of_contexts_is_the_sum_of_both_means(prompts: dict[int, int], outputs: dict[int, int]) -> None:
    made = contexts(prompts, outputs)
    assert sum(made.values()) == PARTS * PARTS
    # Each sum is at its bucket's longest, up to 1/16 too long, and parts are whole.
    exact = _mean_of_middles(prompts) + _mean_of_middles(outputs)
    assert exact * 0.999 - 1 <= mean_tokens(made) <= exact * 1.07 + 1


def _mean_of_middles(lengths: dict[int, int]) -> float:
    return sum(middle_of(bucket) * count for bucket, count in lengths.items()) / sum(lengths.values())


def test_the_longest_goes_with_the_longest() -> None:
    made = contexts({bucket_of(10): 1, bucket_of(1000): 1}, {bucket_of(10): 1, bucket_of(2000): 1})
    assert made == {bucket_of(20): PARTS * PARTS // 2, bucket_of(1007 + 2015): PARTS * PARTS // 2}


@pytest.mark.parametrize(("prompts", "outputs"), [({}, fixed(1)), (fixed(1), {})])
def test_nothing_seen_is_nothing_to_plan_with(prompts: dict[int, int], outputs: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="no length"):
        contexts(prompts, outputs)


@given(counts, st.integers(1, 30_000))
def test_no_context_is_longer_than_the_engine_s(lengths: dict[int, int], most: int) -> None:
    made = at_most(lengths, most)
    assert sum(made.values()) == sum(lengths.values())
    assert all(lowest_of(bucket) <= most for bucket in made)
    if max(map(longest_of, lengths)) <= most:
        assert made == lengths
