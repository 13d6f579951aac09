from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.recording.schedule import due_ms

MINUTE = 60_000
intervals = st.integers(1, 3600).map(lambda seconds: seconds * 1000)
times = st.integers(10**12, 2 * 10**12)


def due(next_ms: int, now_ms: int) -> int | None:
    """A minute's interval, 15 s for samples to come, five minutes for what is missed."""
    return due_ms(next_ms, now_ms, MINUTE, 15_000, 300_000)


def test_a_moment_is_due_once_its_samples_have_come():
    assert due(5 * MINUTE, 5 * MINUTE + 14_999) is None
    assert due(5 * MINUTE, 5 * MINUTE + 15_000) == 5 * MINUTE


def test_what_was_missed_follows_as_far_back_as_late_samples_are_taken():
    assert due(10 * MINUTE, 13 * MINUTE + 15_000) == 10 * MINUTE
    assert due(10 * MINUTE, 100 * MINUTE + 15_000) == 96 * MINUTE


def test_without_late_samples_the_latest_moment_is_due_all_the_same():
    assert due_ms(0, 100 * MINUTE + 15_000, MINUTE, 15_000, 0) == 100 * MINUTE


def test_a_clock_that_was_set_back_does_not_stop_a_group():
    assert due(10_000 * MINUTE, 100 * MINUTE + 15_000) == 100 * MINUTE


@given(start=times, interval=intervals, delay=st.integers(0, 300_000), late=st.integers(0, 86_400_000), data=st.data())
def test_moments_are_whole_intervals_each_once_and_none_left_out_within_the_window(start, interval, delay, late, data):
    pauses = data.draw(st.lists(st.integers(0, 20 * interval), max_size=10))
    next_ms = now_ms = start
    for pause in pauses:
        now_ms += pause
        while (at_ms := due_ms(next_ms, now_ms, interval, delay, late)) is not None:
            assert at_ms % interval == 0
            assert next_ms <= at_ms <= now_ms - delay
            missed = at_ms - interval
            assert missed < next_ms or missed < now_ms - late
            next_ms = at_ms + interval
