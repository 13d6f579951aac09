"""Where Prometheus 3 differs from the 2.42 that test_differential.py compares with, limits, and refusals by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TimedOut, TooMuch, Unanswerable, Unsupported
from controlplane.telemetry.promql.evaluation import Evaluation
from controlplane.telemetry.promql.grammar import MAX_CHARACTERS, parse, parse_selector
from controlplane.telemetry.results import samples_of
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from wire.write_body import Series

MINUTE_MS = 60_000


@pytest.fixture
def value_of(tmp_path):
    """The value of a query of one row at a time in ms, on the given series; None for no row."""

    def make(*series: Series) -> Any:
        path = tmp_path / "metrics.sqlite3"
        store(path, series, Owner("node", "n-1"))

        def value(query: str, at_ms: int) -> float | None:
            rows = evaluated(Reader(path), query, at_ms)
            assert len(rows) <= 1
            return rows[0].value if rows else None

        return value

    return make


def evaluated(reader: Reader, query: str, at_ms: int, budget: Budget | None = None) -> Any:
    evaluation = Evaluation(np.array([at_ms]), reader.select, budget or Budget(10**7, 60))
    return samples_of(evaluation.evaluate(parse(query)), at_ms)  # type: ignore[arg-type]


def test_a_range_is_open_on_the_left(value_of):
    value = value_of(named("a", [(0, 1), (MINUTE_MS, 2), (2 * MINUTE_MS, 4)]))
    assert value("sum_over_time(a[2m])", 2 * MINUTE_MS) == 6
    assert value("sum_over_time(a[2m])", 2 * MINUTE_MS - 1) == 3


def test_the_look_back_is_open_on_the_left(value_of):
    value = value_of(named("a", [(0, 1)]))
    assert value("a", 5 * MINUTE_MS - 1) == 1
    assert value("a", 5 * MINUTE_MS) is None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # 60 s apart, in a window of 240 s that ends at 200 s: 100 s before the first sample are more than 1.1
        # intervals, so half an interval counts there, and all 20 s at the end.
        ([(60, 1000), (120, 1030), (180, 1060)], 60 * (120 + 30 + 20) / 120),
        # The same from 10: the counter's line meets zero 20 s before the first sample, nearer than half an interval.
        ([(60, 10), (120, 40), (180, 70)], 60 * (120 + 20 + 20) / 120),
        # From 20: 40 s before, which is more than half an interval: Prometheus 2 took those, version 3 does not.
        ([(60, 20), (120, 50), (180, 80)], 60 * (120 + 30 + 20) / 120),
        # A reset: what was counted before is added.
        ([(60, 1000), (120, 1030), (180, 5)], 35 * (120 + 30 + 20) / 120),
    ],
)
def test_increase_is_extended_to_the_window_as_in_version_3(value_of, samples, expected):
    value = value_of(named("a", [(seconds * 1000, count) for seconds, count in samples]))
    assert value("increase(a[4m])", 200_000) == pytest.approx(expected, rel=1e-12)
    assert value("rate(a[4m])", 200_000) == pytest.approx(expected / 240, rel=1e-12)


def test_an_end_that_is_near_extends_and_one_that_is_far_does_not(value_of):
    value = value_of(named("a", [(60_000, 5), (120_000, 8), (180_000, 11)]))
    assert value("delta(a[3m])", 180_000 + 50_000) == pytest.approx(6 * (120 + 10 + 50) / 120)
    assert value("delta(a[5m])", 180_000 + 170_000) == pytest.approx(6 * (120 + 10 + 30) / 120)


def test_nan_is_chosen_last(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    rows = [named("a", [(0, value)], n=str(value)) for value in (math.nan, 1.0, 2.0, 3.0)]
    store(path, rows, Owner("node", "n-1"))

    def chosen(query: str) -> list[str]:
        return [sample.labels["n"] for sample in evaluated(Reader(path), query, 0)]

    assert chosen("topk(2, a)") == ["3.0", "2.0"]
    assert chosen("bottomk(2, a)") == ["1.0", "2.0"]
    assert chosen("topk(9, a)") == ["3.0", "2.0", "1.0", "nan"]
    assert chosen("bottomk(9, a)") == ["1.0", "2.0", "3.0", "nan"]


def test_a_sum_does_not_lose_what_is_small(value_of):
    value = value_of(named("a", [(0, 1e16), (1, 1.0), (2, -1e16)]))
    assert value("sum_over_time(a[1m])", 100) == 1


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("limitk(2, a)", "limitk"),
        ('a{b="1" or c="2"}', "or"),
        ("histogram_avg(a)", "histogram_avg"),
        ('sort_by_label(a, "b")', "sort_by_label"),
        ('sort_by_label_desc(a, "b")', "sort_by_label_desc"),
        ("limit_ratio(0.5, a)", "limit_ratio"),
        ("sum(rate(a[5m])) + 1 > mad_over_time(b[5m])", "mad_over_time"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(query, what):
    with pytest.raises(Unsupported, match=rf"\b{what}"):
        parse(query)
    assert (Unsupported.status, Unsupported.error_type) == (422, "execution")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "sum(",
        "a b",
        "rate(a)",
        'a{b=~"("}',
        "1 > 2",
        '{b=""}',
        "a[5m",
        "unknown(a)",
        "a" * (MAX_CHARACTERS + 1),
        "+".join("a" * 5000),
        "(" * 5000 + "a" + ")" * 5000,
        "-" * 5000 + "a",
        "a" + "^2" * 3000,
    ],
)
def test_what_is_no_promql_is_refused(query):
    with pytest.raises(BadQuery):
        parse(query)


def test_the_deepest_query_that_is_taken_is_evaluated(value_of):
    value = value_of(named("a", [(0, 1)]))
    assert value("+".join("a" * 200), 0) == 200
    assert value("(" * 199 + "a" + ")" * 199, 0) == 1


@pytest.mark.parametrize("text", ["a + b", "rate(a[5m])", "a offset 5m", "1", "a[5m]", "a @ 5"])
def test_only_a_selector_chooses_series(text):
    with pytest.raises(BadQuery, match="match"):
        parse_selector(text)


def test_operators_within_strings_do_not_count():
    assert parse('a{b="' + "+-(" * 500 + '"}')


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a + on (n) b", "many-to-many matching not allowed"),
        ("a * on () b", "many-to-many matching not allowed"),
        ('a + on (node) b{n="1"}', "many-to-one matching must be explicit"),
        ('{__name__=~"a|b",n="1"} * 2', "same labelset"),
        ("topk(1 / 0, a)", "overflows int64"),
        ("a[5m] + 1", "scalars and instant vectors|binary expression"),
    ],
)
def test_what_has_no_answer_says_why(tmp_path, query, message):
    path = tmp_path / "metrics.sqlite3"
    rows = [named(name, [(0, 1.0)], n=n, m=m) for name in "ab" for n, m in (("1", "1"), ("2", "1"), ("2", "2"))]
    store(path, rows, Owner("node", "n-1"))
    with pytest.raises(QueryError, match=message) as refused:
        evaluated(Reader(path), query, 0)
    assert isinstance(refused.value, Unanswerable | BadQuery)


def test_samples_that_a_query_touches_are_bounded(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    store(path, [named("a", [(at, 1.0) for at in range(1000)])], Owner("node", "n-1"))
    assert evaluated(Reader(path), "a", 999, Budget(1001, 60))
    with pytest.raises(TooMuch, match="1000 samples"):
        evaluated(Reader(path), "a", 999, Budget(1000, 60))
    # The window itself counts too, since every step reads it anew.
    with pytest.raises(TooMuch):
        evaluated(Reader(path), "sum_over_time(a[1m])", 999, Budget(1500, 60))


def test_a_query_that_takes_too_long_ends(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    store(path, [named("a", [(0, 1.0)])], Owner("node", "n-1"))
    now = iter(range(100))
    with pytest.raises(TimedOut, match="3 s"):
        evaluated(Reader(path), " + ".join("a" * 10), 0, Budget(10**6, 3, clock=lambda: next(now)))
