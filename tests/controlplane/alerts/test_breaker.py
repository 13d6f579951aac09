from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.breaker import PAUSE_FIRST, Breaker, Limits, after, take
from controlplane.alerts.delivery_plan import Outcome, Reason

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits(failures=3, pause_max=timedelta(minutes=5))
FAILED = Outcome(Reason.SERVER_ERROR)


def failed(times: int, breaker: Breaker | None = None, outcome: Outcome = FAILED) -> Breaker:
    breaker = breaker or Breaker()
    for _ in range(times):
        breaker = after(breaker, outcome, NOW, LIMITS)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row():
    assert failed(2).open_until is None
    assert failed(3).open_until == NOW + PAUSE_FIRST
    assert failed(2, after(failed(2), Outcome(Reason.TAKEN), NOW, LIMITS)).open_until is None


def test_each_probe_that_fails_doubles_the_pause_up_to_its_bound():
    pauses = [failed(times).open_until - NOW for times in range(3, 10)]  # type: ignore[operator]
    assert pauses[:4] == [PAUSE_FIRST, PAUSE_FIRST * 2, PAUSE_FIRST * 4, PAUSE_FIRST * 8]
    assert pauses[-1] == LIMITS.pause_max


def test_a_probe_that_is_taken_closes_it():
    assert after(failed(7), Outcome(Reason.TAKEN), NOW, LIMITS) == Breaker()


def test_a_pause_that_the_receiver_asks_for_is_kept():
    busy = Outcome(Reason.BUSY, retry_after=timedelta(minutes=20))
    assert failed(3, outcome=busy).open_until == NOW + timedelta(minutes=20)


@pytest.mark.parametrize("reason", [Reason.INVALID, Reason.FAILED_HERE])
def test_what_says_nothing_of_the_receiver_opens_nothing_and_lets_the_next_probe_begin(reason):
    assert failed(20, outcome=Outcome(reason)) == Breaker()
    assert after(failed(3), Outcome(reason), NOW, LIMITS) == Breaker(3, NOW)


@given(st.integers(1, 10_000), st.lists(st.integers(0, 200_000), max_size=300))
def test_no_more_are_sent_in_any_time_than_a_full_bucket_and_its_refill(per_minute, pauses_ms):
    now, full_at, taken = NOW, None, []
    for pause in pauses_ms:
        now += timedelta(milliseconds=pause)
        after_it = take(full_at, per_minute, now)
        if after_it is not None:
            full_at = after_it
            taken.append(now)
    for start in range(len(taken)):
        for end in range(start, len(taken)):
            minutes = (taken[end] - taken[start]) / timedelta(minutes=1)
            # A token more for the microseconds that a share of a minute is rounded down by.
            assert end - start + 1 <= per_minute * (1 + minutes) + 1


def test_a_bucket_is_empty_after_as_many_as_a_minute_has_and_fills_again():
    full_at = None
    for _ in range(7):
        full_at = take(full_at, 7, NOW)
        assert full_at is not None
    assert take(full_at, 7, NOW) is None
    assert take(full_at, 7, NOW + timedelta(seconds=8)) is None
    assert take(full_at, 7, NOW + timedelta(seconds=9)) is not None
