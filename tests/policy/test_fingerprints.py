"""What was seen before is known, within errors that are told, in memory that does not grow."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.fingerprints import SeenLately, SeenWithin

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def numbers(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.getrandbits(64) for _ in range(count)]


def test_what_came_within_the_window_is_known():
    seen = SeenLately(1024, MINUTE_MS)
    assert not seen.seen(7, 0)
    assert seen.seen(7, MINUTE_MS - 1)
    assert seen.seen(7, 2 * MINUTE_MS - 2)
    assert not seen.seen(7, 3 * MINUTE_MS - 2)


def test_negative_hashes_and_zero_are_fingerprints_like_others():
    seen, within = SeenLately(1024, MINUTE_MS), SeenWithin(1024, DAY_MS)
    for fingerprint in (hash("a"), -abs(hash("b")), 0):
        for each in (seen, within):
            assert not each.seen(fingerprint, 1)
            assert each.seen(fingerprint, 2)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 30_000)), max_size=80))
def test_lately_never_takes_a_new_one_for_known(events: list[tuple[int, int]]):
    seen, came, now_ms = SeenLately(8, MINUTE_MS), dict[int, int](), 0
    for fingerprint, later_ms in events:
        now_ms += later_ms
        if seen.seen(fingerprint, now_ms):
            assert now_ms - came[fingerprint] < MINUTE_MS
        came[fingerprint] = now_ms


def test_lately_misses_no_more_than_it_says():
    slots, between = 4096, 2048
    seen = SeenLately(slots, MINUTE_MS)
    first, others = numbers(1000, 1), numbers(between, 2)
    for fingerprint in first + others:
        seen.seen(fingerprint, 0)
    # Asking enters, so each is asked of a copy.
    missed = sum(not copy.deepcopy(seen).seen(fingerprint, 1) for fingerprint in first)
    # Those of the first thousand that came after it crowd one out too, half of them on average.
    expected = 1 - (1 - 1 / slots) ** (between + 500)
    assert abs(missed / 1000 - expected) < 0.06


def test_within_knows_all_of_the_last_half_window_and_nothing_older_than_the_window():
    seen = SeenWithin(1024, DAY_MS)
    assert not seen.seen(7, 0)
    assert seen.seen(7, DAY_MS // 2)
    assert not seen.seen(8, DAY_MS)
    # 7 was seen again at noon, and counts from then.
    assert seen.seen(7, DAY_MS)
    assert not SeenWithin(1024, DAY_MS).seen(7, 0)


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, DAY_MS)), max_size=60))
def test_within_never_misses_what_came_in_the_last_half_window(events: list[tuple[int, int]]):
    names = numbers(16, 3)
    seen, came, now_ms = SeenWithin(1024, DAY_MS), dict[int, int](), 0
    for which, later_ms in events:
        now_ms += later_ms
        known, age_ms = seen.seen(names[which], now_ms), now_ms - came.get(which, -DAY_MS)
        assert known or age_ms >= DAY_MS // 2
        # Sixteen in a filter for a thousand are not mixed up.
        assert not known or age_ms <= DAY_MS
        came[which] = now_ms


def test_within_mixes_up_no_more_than_it_says_while_its_filters_are_full():
    capacity = 2**14
    seen = SeenWithin(capacity, DAY_MS)
    for fingerprint in numbers(2 * capacity, 4):
        seen.seen(fingerprint, 0)
    news = numbers(8 * capacity, 5)
    wrong = sum(seen.seen(fingerprint, 0) for fingerprint in news)
    assert 1 / 3_400 < wrong / len(news) < 1 / 850


def test_more_than_it_holds_shortens_the_window_and_not_the_truth():
    capacity = 1024
    seen = SeenWithin(capacity, DAY_MS)
    came = numbers(10 * capacity, 6)
    wrong = sum(seen.seen(fingerprint, 0) for fingerprint in came)
    assert wrong / len(came) < 0.004
    assert all(seen.seen(fingerprint, 0) for fingerprint in came[-capacity:])
    assert sum(seen.seen(fingerprint, 0) for fingerprint in came[:capacity]) < 20


def test_a_size_that_is_no_power_of_two_is_refused():
    for kind in (SeenLately, SeenWithin):
        with pytest.raises(ValueError, match="power of two, not 1000"):
            kind(1000, DAY_MS)
