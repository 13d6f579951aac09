"""The rate of a queue: measured while some wait, forgotten with time, and no guess."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.service_rate import HALF_LIFE_MS, ServiceRate


def steady(every_ms: int, count: int, start_ms: int = 0) -> tuple[ServiceRate, int]:
    rate = ServiceRate(start_ms)
    rate.waiting(True, start_ms)
    now_ms = start_ms
    for _ in range(count):
        now_ms += every_ms
        rate.served(now_ms)
    return rate, now_ms


def test_few_say_nothing():
    rate, now_ms = steady(100, 8)
    assert rate.per_second(now_ms) is rate.at_most_per_second(now_ms) is None


@given(st.integers(1, 2_000))
def test_a_steady_rate_is_found(every_ms: int):
    rate, now_ms = steady(every_ms, 200)
    assert rate.per_second(now_ms) == pytest.approx(1000 / every_ms, rel=0.05)


def test_time_in_which_none_waits_does_not_count():
    rate, now_ms = steady(100, 50)
    rate.waiting(False, now_ms)
    assert rate.per_second(now_ms + 10_000) == pytest.approx(10, rel=0.05)
    rate.waiting(True, now_ms + 10_000)
    for number in range(1, 21):
        rate.served(now_ms + 10_000 + 100 * number)
    assert rate.per_second(now_ms + 12_000) == pytest.approx(10, rel=0.05)


def test_what_is_long_over_says_nothing():
    rate, now_ms = steady(100, 50)
    rate.waiting(False, now_ms)
    assert rate.per_second(now_ms + HALF_LIFE_MS) is not None
    assert rate.per_second(now_ms + 4 * HALF_LIFE_MS) is None


def test_a_queue_that_stands_still_is_found_slow_and_then_unknown():
    rate, now_ms = steady(100, 200)
    slow = rate.per_second(now_ms + 30_000)
    assert slow is not None
    assert slow < 5
    assert rate.per_second(now_ms + 10 * HALF_LIFE_MS) is None


@given(st.lists(st.integers(0, 500), min_size=20, max_size=200))
def test_the_highest_rate_is_above_the_mean_and_nears_it_with_numbers(gaps: list[int]):
    rate = ServiceRate(0)
    rate.waiting(True, 0)
    now_ms = 0
    for gap in gaps:
        now_ms += gap
        rate.served(now_ms)
    mean, most = rate.per_second(now_ms), rate.at_most_per_second(now_ms)
    if mean is not None and most is not None:
        assert mean < most <= mean * (1 + 2 / 3)


def test_a_clock_that_stands_still_is_no_rate():
    rate = ServiceRate(5)
    rate.waiting(True, 5)
    for _ in range(50):
        rate.served(5)
    assert rate.per_second(5) is None
