"""Functions over ranges against Prometheus 3's own loops, sample by sample; whole queries: test_differential.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.telemetry.promql import regression, variance, windows
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import TimedOut, Unanswerable
from controlplane.telemetry.promql.values import Scalar, Vector, Windows
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.promql.memory import MINUTE_MS, evaluated, rows_of, value_of

Samples = Sequence[tuple[int, float]]
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0, 2.0, -3.0, math.nan, math.inf, -math.inf]),
    st.floats(-1e6, 1e6),
    # Of moments in seconds the last bits are what differs.
    st.floats(1.79e9, 1.79e9 + 10),
)
SAMPLES = st.lists(st.tuples(st.integers(1, 20_000), NUMBERS), max_size=12).map(
    lambda pairs: list(zip(itertools.accumulate(gap for gap, _ in pairs), (value for _, value in pairs), strict=True))
)
ROWS = st.lists(SAMPLES, min_size=1, max_size=3)
ENDS = st.lists(st.integers(0, 100_000), min_size=1, max_size=4)


def windows_on(rows: Sequence[Samples], ends: Sequence[int], range_ms: int) -> Windows:
    flat = [sample for row in rows for sample in row]
    starts = list(itertools.accumulate((len(row) for row in rows), initial=0))
    lo, hi = (
        np.array(
            [
                [start + sum(at <= end - before for at, _ in row) for end in ends]
                for start, row in zip(starts[:-1], rows, strict=True)
            ],
            np.int64,
        )
        for before in (range_ms, 0)
    )
    labels = [{"n": str(row)} for row in range(len(rows))]
    times, values = np.array([at for at, _ in flat], np.int64), np.array([value for _, value in flat], np.float64)
    return Windows(labels, times, values, lo, hi, np.array(ends), range_ms)


def check(
    result: Vector, rows: Sequence[Samples], ends: Sequence[int], range_ms: int, own: Callable[..., object]
) -> None:
    """`own` is given a window's samples and its end; None for no value."""
    for row, samples in enumerate(rows):
        for place, end in enumerate(ends):
            expected = own([(at, value) for at, value in samples if end - range_ms < at <= end], end)
            found = float(result.values[row, place]) if result.present[row, place] else None
            assert found == expected or (str(found) == str(expected) == "nan"), (row, end)


def kahan(term: float, total: float, rest: float) -> tuple[float, float]:
    added = total + term
    if math.isinf(added):
        return added, 0.0
    larger, smaller = (total, term) if abs(total) >= abs(term) else (term, total)
    return added, rest + ((larger - added) + smaller)


def stdvar(samples: Samples, end: int) -> float | None:
    mean = mean_rest = squares = squares_rest = 0.0
    for count, (_, value) in enumerate(samples, 1):
        off = value - (mean + mean_rest)
        mean, mean_rest = kahan(off / count, mean, mean_rest)
        squares, squares_rest = kahan(off * (value - (mean + mean_rest)), squares, squares_rest)
    return (squares + squares_rest) / len(samples) if samples else None


def changes(samples: Samples, end: int) -> float | None:
    pairs = [(before, after) for (_, before), (_, after) in itertools.pairwise(samples)]
    different = [before != after and not (math.isnan(before) and math.isnan(after)) for before, after in pairs]
    return float(sum(different)) if samples else None


def resets(samples: Samples, end: int) -> float | None:
    return float(sum(after < before for (_, before), (_, after) in itertools.pairwise(samples))) if samples else None


def idelta(samples: Samples, end: int) -> float | None:
    return samples[-1][1] - samples[-2][1] if len(samples) >= 2 else None


def line(samples: Samples, origin_ms: int) -> tuple[float, float]:
    first, count = samples[0][1], float(len(samples))
    if all(value == first for _, value in samples[1:]):
        return (math.nan, math.nan) if math.isinf(first) else (0.0, first)
    sums = []
    for term in (lambda x, y: x, lambda x, y: y, lambda x, y: x * y, lambda x, y: x * x):
        total = rest = 0.0
        for at, value in samples:
            total, rest = kahan(term((at - origin_ms) / 1e3, value), total, rest)
        sums.append(total + rest)
    sum_x, sum_y, sum_xy, sum_xx = sums
    covariance, spread = sum_xy - sum_x * sum_y / count, sum_xx - sum_x * sum_x / count
    slope = covariance / spread if spread else math.copysign(math.inf, covariance) if covariance else math.nan
    return slope, sum_y / count - slope * sum_x / count


@pytest.mark.parametrize(
    ("function", "own"),
    [
        (windows.changes, changes),
        (windows.resets, resets),
        (windows.instant_delta, idelta),
        (windows.first_over_time, lambda samples, end: samples[0][1] if samples else None),
        (windows.last_over_time, lambda samples, end: samples[-1][1] if samples else None),
        (windows.count_over_time, lambda samples, end: float(len(samples)) if samples else None),
        (lambda given: variance.stdvar_over_time(given, lambda samples: None), stdvar),
    ],
)
@given(rows=ROWS, ends=ENDS, range_ms=st.integers(0, 100_000))
def test_a_window_has_the_value_that_prometheus_loop_gives(function, own, rows, ends, range_ms):
    check(function(windows_on(rows, ends, range_ms)), rows, ends, range_ms, own)


@given(values=st.lists(st.one_of(NUMBERS, st.sampled_from([1e16, -1e16, 0.1, 1e308, -1e308])), min_size=1, max_size=8))
@example(values=[-1e308, -1e308, math.inf])
@example(values=[1e308, 1e308, -1e308])
@example(values=[1e16, 0.1, -1e16])
def test_a_sum_loses_and_overflows_as_in_prometheus(values):
    total = rest = 0.0
    for value in values:
        total, rest = kahan(value, total, rest)
    whole = windows_on([list(enumerate(values, 1))], [len(values)], len(values))
    result = windows.sum_over_time(whole, lambda samples: None)
    assert result.values[0, 0] == pytest.approx(total + rest, rel=1e-11, abs=0, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "average"),
    [
        ([1e16, 0.1, -1e16], 0.1 / 3),
        # An average is within its parts even where their sum is too large for a double.
        ([1e308, 1e308], 1e308),
        ([1e308, 1e308, math.inf], math.inf),
    ],
)
def test_an_average_loses_no_more_than_in_prometheus(values, average):
    whole = windows_on([list(enumerate(values, 1))], [len(values)], len(values))
    result = windows.avg_over_time(whole, lambda samples: None)
    assert result.values[0, 0] == pytest.approx(average, rel=1e-11, abs=0)


FINITE = st.lists(st.tuples(st.integers(1, 20_000), st.floats(-1e6, 1e6)), max_size=12).map(
    lambda pairs: list(zip(itertools.accumulate(gap for gap, _ in pairs), (value for _, value in pairs), strict=True))
)


@given(rows=st.lists(FINITE, min_size=1, max_size=3), ends=ENDS, range_ms=st.integers(0, 100_000))
def test_lines_are_those_that_prometheus_draws(rows, ends, range_ms):
    def slope(samples: Samples, end: int) -> object:
        return pytest.approx(line(samples, samples[0][0])[0], rel=1e-9, abs=1e-9) if len(samples) >= 2 else None

    def ahead(samples: Samples, end: int) -> object:
        if len(samples) < 2:
            return None
        own_slope, at_end = line(samples, end)
        return pytest.approx(own_slope * 60 + at_end, rel=1e-7, abs=1e-3)

    sampled = windows_on(rows, ends, range_ms)
    check(regression.deriv(sampled), rows, ends, range_ms, slope)
    seconds = Scalar(np.full(len(ends), 60.0))
    check(regression.predict_linear(sampled, seconds, np.array(ends)), rows, ends, range_ms, ahead)


@pytest.mark.parametrize(
    ("values", "slope", "at_end"),
    [
        ([5.0, 5.0, 5.0], 0.0, 5.0),
        ([-5.0, -5.0], 0.0, -5.0),
        ([math.inf, math.inf], math.nan, math.nan),
        ([math.nan, math.nan], math.nan, math.nan),
        ([1.0, math.inf], math.nan, math.nan),
        ([1.0, 2.0, 3.0], 1.0, 3.0),
    ],
)
def test_a_line_through_what_is_level_or_no_number(values, slope, at_end):
    rows = [[(1000 * second, value) for second, value in enumerate(values, 1)]]
    end = 1000 * len(values)
    sampled = windows_on(rows, [end], end)
    assert regression.deriv(sampled).values[0, 0] == pytest.approx(slope, nan_ok=True)
    seconds = Scalar(np.array([0.0]))
    assert regression.predict_linear(sampled, seconds, np.array([end])).values[0, 0] == pytest.approx(
        at_end, nan_ok=True
    )


@given(rows=ROWS, ends=ENDS, range_ms=st.integers(0, 100_000), most=st.integers(1, 20))
def test_windows_that_are_laid_out_in_parts_give_the_same(rows, ends, range_ms, most):
    sampled = windows_on(rows, ends, range_ms)
    middle = Scalar(np.full(len(ends), 0.4))

    def results() -> list[Vector]:
        ahead = regression.predict_linear(sampled, middle, np.array(ends))
        return [regression.deriv(sampled), ahead, windows.quantile_over_time(middle, sampled)]

    whole = results()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "_BLOCK_SAMPLES", most)
        parts = results()
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_prediction_starts_from_the_step_even_where_the_window_does_not_move():
    # 1 a second, seen at 60 s; Debian's Prometheus moves the window all the same, version 3 does not.
    series = [named("a", [(second * 1000, float(second)) for second in range(0, 61, 15)])]
    result = evaluated(series, "predict_linear(a[1m] @ 60, 10)", [60_000, 600_000])
    assert rows_of(result) == [pytest.approx([70, 610])]


def test_the_first_sample_keeps_its_name():
    series = [named("a", [(1000, 7.0), (2000, 8.0)])]
    result = evaluated(series, "first_over_time(a[1m])", [2000])
    assert isinstance(result, Vector)
    assert (result.labels, rows_of(result)) == ([{"__name__": "a", "node": "n-1"}], [[7]])


def test_infinities_have_no_difference():
    series = [named("a", [(1000, math.inf), (2000, math.inf)])]
    assert value_of(series, "delta(a[1m])", 2000) == pytest.approx(math.nan, nan_ok=True)


def test_rows_that_lose_their_names_over_ranges_never_join():
    series = [named("a", [(0, 1.0)]), named("b", [(30 * MINUTE_MS, 2.0)])]
    moments = [MINUTE_MS - 1, 31 * MINUTE_MS - 1]
    query = '{__name__=~"a|b"}'
    assert rows_of(evaluated(series, f"abs({query})", moments)) == [[1, 2]]
    with pytest.raises(Unanswerable, match="same labelset"):
        evaluated(series, f"changes({query}[1m])", moments)


def test_a_long_window_ends_with_the_time_limit():
    now = iter(range(1000))
    budget = Budget(10**6, 3, clock=lambda: next(now))
    long = windows_on([[(at, 1.0) for at in range(1, 10_001)]], [10_000], 10_000)
    with pytest.raises(TimedOut):
        variance.stddev_over_time(long, budget.touch)
