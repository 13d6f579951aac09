"""A day's budget gives out no more than it holds, and begins anew with the day."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.budget import DayBudget, DayShare
from policy.limits import day_of
from wire.snapshot import Tenant

HOUR_MS = 3_600_000
UTC, ISTANBUL = Tenant(), Tenant(time_zone="Europe/Istanbul")


def budget() -> DayBudget:
    return DayBudget(day_of(UTC, 0))


def test_what_is_reserved_is_held_and_what_was_not_used_comes_back():
    day = budget()
    share = day.reserve(80, 100)
    assert share is not None
    assert day.reserve(21, 100) is None
    day.settle(share, 30)
    assert (day.used_tokens, day.reserved_tokens) == (30, 0)
    assert day.reserve(70, 100) is not None


def test_the_next_day_begins_with_nothing_used_and_counts_nothing_of_the_last():
    day = budget()
    share = day.reserve(80, 100)
    assert share is not None
    day.turn(UTC, 24 * HOUR_MS)
    assert day.taken_tokens == 0
    assert day.reserve(100, 100) is not None
    day.settle(share, 80)
    assert (day.used_tokens, day.reserved_tokens) == (0, 100)


def test_neither_a_clock_that_steps_back_nor_another_time_zone_gives_anything_back():
    day = budget()
    share = day.reserve(80, 100)
    assert share is not None
    day.turn(UTC, -1)
    assert day.day == day_of(UTC, 0), "else the budget would begin anew at midnight once more"
    for tenant, moment in ((ISTANBUL, 22 * HOUR_MS), (UTC, 23 * HOUR_MS)):
        day.turn(tenant, moment)
        assert day.day == day_of(tenant, moment)
        assert day.taken_tokens == 80
    day.settle(share, 80)
    assert day.used_tokens == 80


def test_a_clock_that_had_been_ahead_by_days_does_not_hold_a_tenant_for_as_long():
    day = budget()
    assert day.reserve(80, 100) is not None
    day.turn(UTC, -30 * HOUR_MS)
    assert day.day == day_of(UTC, -30 * HOUR_MS)
    assert day.taken_tokens == 80


@given(st.integers(0, 100), st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 60)), max_size=30))
def test_what_is_taken_stays_within_the_budget_while_nobody_uses_more_than_reserved(
    limit: int, asks: list[tuple[int, bool, int]]
):
    day, open_shares = budget(), list[DayShare]()
    for tokens, settles, used in asks:
        share = day.reserve(tokens, limit)
        if share is not None:
            open_shares.append(share)
        if settles and open_shares:
            ended = open_shares.pop(0)
            day.settle(ended, min(used, ended.tokens))
        assert 0 <= day.taken_tokens <= limit
        assert day.reserved_tokens == sum(share.tokens for share in open_shares)
