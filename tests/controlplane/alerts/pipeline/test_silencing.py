"""Silences and weekly windows: when they are on, and when that changes."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.pipeline.matchers import read
from controlplane.alerts.pipeline.silencing import DAYS, Silencers, SilenceSpan, WeeklyWindow

ALL = read(['severity=~".+"'])
# A Monday.
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def span(start: float = -1, end: float = 1, name: str = "s") -> SilenceSpan:
    hour = timedelta(hours=1)
    return SilenceSpan(name, ALL, NOON + start * hour, NOON + end * hour)


def window(days: str = "mon", starts: str = "11:00", ends: str = "13:00", zone: str = "UTC") -> WeeklyWindow:
    chosen = frozenset(DAYS.index(day) for day in days.split())
    return WeeklyWindow("w", ALL, chosen, time.fromisoformat(starts), time.fromisoformat(ends), ZoneInfo(zone))


@pytest.mark.parametrize(("start", "end", "on"), [(-1, 1, True), (0, 1, True), (-1, 0, False), (1, 2, False)])
def test_a_silence_is_on_from_its_start_and_no_more_at_its_end(start: float, end: float, on: bool) -> None:
    assert span(start, end).is_on(NOON) is on


def test_a_silence_changes_at_its_start_then_at_its_end_then_never() -> None:
    one = span(1, 2)
    assert one.next_change(NOON) == one.starts_at
    assert one.next_change(one.starts_at) == one.ends_at
    assert one.next_change(one.ends_at) is None


@pytest.mark.parametrize(
    ("of", "on"),
    [
        (window(), True),
        (window("tue"), False),
        (window(starts="12:00", ends="12:01"), True),
        (window(starts="11:00", ends="12:00"), False),
        # From yesterday evening on, by what day it began.
        (window("sun", "22:00", "13:00"), True),
        (window("mon", "22:00", "13:00"), False),
        # As long as the clock goes round.
        (window("mon", "12:00", "12:00"), True),
        (window("sun", "12:01", "12:01"), True),
        # 14:00 in Istanbul is 11:00 in UTC.
        (window(starts="15:00", ends="15:30", zone="Europe/Istanbul"), True),
        (window(starts="12:00", ends="12:30", zone="Europe/Istanbul"), False),
    ],
)
def test_a_window_is_on_by_the_days_and_clocks_of_its_place(of: WeeklyWindow, on: bool) -> None:
    assert of.is_on(NOON) is on


def test_a_window_over_the_night_of_a_clock_change_is_an_hour_shorter() -> None:
    berlin = window("sat", "22:00", "06:00", "Europe/Berlin")
    start = datetime(2026, 3, 28, 21, tzinfo=UTC)
    assert berlin.next_change(start - timedelta(minutes=1)) == start
    assert berlin.next_change(start) == datetime(2026, 3, 29, 4, tzinfo=UTC)


TIMES = st.builds(time, st.integers(0, 23), st.integers(0, 59))
ZONES = st.sampled_from(["UTC", "Europe/Istanbul", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@given(st.frozensets(st.integers(0, 6), min_size=1), TIMES, TIMES, ZONES, MOMENTS)
def test_nothing_changes_before_the_next_change(
    days: frozenset[int], starts: time, ends: time, zone: str, now: datetime
) -> None:
    one = WeeklyWindow("w", ALL, days, starts, ends, ZoneInfo(zone))
    change = one.next_change(now)
    assert change is not None
    assert now < change <= now + timedelta(days=8)
    for share in (0.25, 0.5, 0.99):
        assert one.is_on(now + (change - now) * share) is one.is_on(now)


def test_alerts_are_silent_by_those_that_are_on_and_match() -> None:
    disks = SilenceSpan("disks", read(['alertname="DiskFull"']), NOON, NOON + timedelta(hours=3))
    silencers = Silencers([span(1, 2, "later"), disks], [window("mon", "11:00", "14:00")], NOON)
    assert silencers.silences_of({"alertname": "DiskFull", "severity": "info"}) == ["disks"]
    assert silencers.silences_of({"alertname": "PoolDown", "severity": "info"}) == []
    assert silencers.windows_of({"severity": "info"}) == ["w"]
    assert silencers.next_change == NOON + timedelta(hours=1)
