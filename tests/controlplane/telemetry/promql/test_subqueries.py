"""Subqueries: their moments, their windows, what they cost. Values: test_differential.py, off the windows' edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import TimedOut, TooMuch
from controlplane.telemetry.promql.subqueries import grid, windows_of
from controlplane.telemetry.promql.values import Vector, Windows
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.promql.memory import MINUTE_MS, evaluated, rows_of, value_of

# One sample a minute on the minute, with its number as its value.
MINUTES = [named("a", [(minute * MINUTE_MS, float(minute)) for minute in range(60)])]
TIMES = st.integers(-(10**7), 10**7)


@given(after_ms=TIMES, span_ms=st.integers(0, 10**6), step_ms=st.integers(1000, 10**6))
def test_the_moments_are_the_multiples_of_the_step_within_a_range_that_is_open_on_the_left(after_ms, span_ms, step_ms):
    expected = [at for at in range(after_ms + 1, after_ms + span_ms + 1) if at % step_ms == 0]
    assert list(grid(after_ms, after_ms + span_ms, step_ms)) == expected


@given(
    present=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), max_size=4),
    ends=st.lists(st.integers(0, 900), min_size=1, max_size=5),
    range_ms=st.integers(0, 500),
)
def test_each_window_has_the_values_of_its_row_that_lie_in_it(present, ends, range_ms):
    times = [100, 200, 300, 400, 500, 600, 700]
    here = np.array(present, np.bool_).reshape(len(present), 7)
    vector = Vector(
        [{"n": str(row)} for row in range(len(present))],
        np.arange(here.size, dtype=np.float64).reshape(here.shape),
        here,
    )
    windows = windows_of(vector, np.array(times), np.array(ends), range_ms)
    for row in range(len(present)):
        for place, end in enumerate(ends):
            inside = slice(int(windows.lo[row, place]), int(windows.hi[row, place]))
            expected = [
                (at, row * 7.0 + step)
                for step, at in enumerate(times)
                if present[row][step] and end - range_ms < at <= end
            ]
            assert list(zip(windows.times_ms[inside], windows.values[inside], strict=True)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Minutes 9 and 10: 8 is on the left edge.
        ("sum_over_time(a[2m:1m])", 19),
        ("sum_over_time(a[2m:])", 19),
        ("sum_over_time(a[2m1ms:1m])", 27),
        ("sum_over_time(a[2m:30s])", 9 + 8 + 10 + 9),
        # Multiples of 4 minutes, wherever the query stands.
        ("sum_over_time(a[10m:4m])", 4 + 8),
        ("sum_over_time(a[2m:1m] offset 3m)", 6 + 7),
        ("sum_over_time(a[2m:1m] offset -3m)", 12 + 13),
        ("sum_over_time(a[2m:1m] @ 300)", 4 + 5),
        ("sum_over_time(a[2m:1m] @ 300 offset 1m)", 3 + 4),
        ("sum_over_time((a @ 300)[3m:1m])", 15),
        ("sum_over_time((a offset 2m)[2m:1m])", 7 + 8),
        ("max_over_time(sum_over_time(a[2m:1m])[3m:1m])", 19),
        ("min_over_time(sum_over_time(a[2m:1m])[3m:1m] offset 1m)", 6 + 7),
        ("count_over_time(vector(1)[5m:1m])", 5),
        ("present_over_time(a[30s:4m])", None),
        ("absent_over_time(a[30s:4m])", 1),
        ("absent_over_time(a[4m:4m])", None),
    ],
)
def test_a_subquery_sees_the_expression_at_its_own_steps(query, expected):
    assert value_of(MINUTES, query, 10 * MINUTE_MS) == expected


def test_start_and_end_within_a_subquery_are_those_of_the_query():
    times = [10 * MINUTE_MS, 12 * MINUTE_MS]
    assert rows_of(evaluated(MINUTES, "max_over_time((a @ start())[3m:1m])", times)) == [[10, 10]]
    assert rows_of(evaluated(MINUTES, "min_over_time((a @ end())[3m:1m])", times)) == [[12, 12]]
    later = evaluated(MINUTES, "min_over_time((a @ end())[3m:1m])", times, bounds_ms=(times[0], 13 * MINUTE_MS))
    assert rows_of(later) == [[13, 13]]


def test_a_subquery_alone_gives_its_samples():
    windows = evaluated(MINUTES, "(a * 2)[3m:1m]", [10 * MINUTE_MS + 1])
    assert isinstance(windows, Windows)
    assert windows.times_ms.tolist() == [8 * MINUTE_MS, 9 * MINUTE_MS, 10 * MINUTE_MS]
    assert (windows.values.tolist(), windows.labels) == ([16, 18, 20], [{"node": "n-1"}])


def test_steps_of_a_subquery_are_counted_before_they_are_made():
    with pytest.raises(TooMuch):
        evaluated(MINUTES, "sum_over_time(vector(1)[290y:1ms])", [10 * MINUTE_MS])
    with pytest.raises(TooMuch):
        evaluated(MINUTES, "max_over_time(max_over_time(a[290y:1y])[30d:1s])", [10 * MINUTE_MS], Budget(10**5, 60))


def test_what_a_subquery_reads_counts():
    query = "sum_over_time(a[10m:1m])"
    assert evaluated(MINUTES, query, [10 * MINUTE_MS], Budget(100, 60))
    with pytest.raises(TooMuch):
        evaluated(MINUTES, query, [10 * MINUTE_MS], Budget(30, 60))
    with pytest.raises(TooMuch):
        evaluated(MINUTES, "sum_over_time((1 + vector(1))[100m:1m])", [10 * MINUTE_MS], Budget(250, 60))


def test_the_time_limit_holds_within_subqueries():
    now = iter(range(100))
    with pytest.raises(TimedOut, match="9 s"):
        evaluated(MINUTES, "max_over_time((a + a + a)[5m:])", [0], Budget(10**6, 9, clock=lambda: next(now)))
