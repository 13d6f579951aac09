"""The scale of lengths: every length has one bucket, and what is read back is near it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wire.sketches import BUCKETS, LENGTH_MAX, added, bucket_of, lowest_of, middle_of, quantile

lengths = st.one_of(st.integers(0, 5000), st.integers(0, LENGTH_MAX))


@given(lengths)
def test_a_length_lies_within_its_bucket(length: int) -> None:
    bucket = bucket_of(length)
    assert 0 <= bucket < BUCKETS
    assert lowest_of(bucket) <= length < lowest_of(bucket + 1)


@given(lengths)
def test_a_length_is_read_back_to_a_thirty_second(length: int) -> None:
    assert abs(middle_of(bucket_of(length)) - length) * 32 <= length


def test_small_lengths_are_exact_and_buckets_follow_one_another() -> None:
    assert [middle_of(bucket_of(length)) for length in range(32)] == list(range(32))
    assert all(bucket_of(lowest_of(bucket)) == bucket for bucket in range(BUCKETS))


def test_what_is_longer_than_the_scale_falls_into_its_last_bucket() -> None:
    assert bucket_of(LENGTH_MAX + 1) == bucket_of(2**60) == BUCKETS - 1


@given(st.lists(lengths, min_size=1), st.integers(0, 1000))
def test_a_quantile_is_the_nearest_ranks_to_a_thirty_second(sizes: list[int], permille: int) -> None:
    found = quantile(added([(bucket_of(size), 1) for size in sizes]), permille)
    rank = max(1, -(-len(sizes) * permille // 1000))
    exact = sorted(sizes)[rank - 1]
    assert found is not None
    assert abs(found - exact) * 32 <= exact


@given(st.lists(lengths), st.lists(lengths))
def test_counts_add_up_as_if_they_had_been_counted_together(one: list[int], other: list[int]) -> None:
    def counted(sizes: list[int]) -> list[tuple[int, int]]:
        return list(added([(bucket_of(size), 1) for size in sizes]).items())

    assert added(counted(one), counted(other)) == dict(counted(one + other))


def test_nothing_counted_has_no_quantile() -> None:
    assert quantile({}, 500) is None
