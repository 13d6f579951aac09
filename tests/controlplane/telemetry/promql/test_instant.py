"""Where Prometheus 3 differs from the 2.42 that test_differential.py compares with, order, limits and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import TooMuch, Unanswerable
from controlplane.telemetry.promql.evaluation import Evaluation
from controlplane.telemetry.promql.grammar import parse, parse_selector
from controlplane.telemetry.promql.values import Vector
from controlplane.telemetry.results import Sample, series_of
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from tests.controlplane.telemetry.promql.test_evaluation import evaluated

Ask = Callable[[str], list[Sample]]


@pytest.fixture
def ask(tmp_path) -> Ask:
    """The rows of a query at time 0, on a few series."""
    path = tmp_path / "metrics.sqlite3"
    values = {"nan": math.nan, "two": 2.0, "minus": -1.0, "inf": math.inf, "three": 3.0}
    rows = [named("a", [(0, value)], n=name) for name, value in values.items()]
    rows += [named("pair", [(0, value)], n="one", m=m) for m, value in (("x", 1.0), ("y", 5.0))]
    rows += [named("one", [(0, 2.0)], n="one"), named("text", [(0, 1.0)], path="first\nsecond")]
    for name, count in (("p_bucket", 10.0), ("q_bucket", 20.0)):
        rows += [named(name, [(0, count * share)], le=le) for le, share in (("1", 1), ("2", 2), ("+Inf", 2))]
    store(path, rows, Owner("node", "n-1"))
    return lambda query: evaluated(Reader(path), query, 0)


def names(rows: list[Sample]) -> list[str]:
    return [row.labels["n"] for row in rows]


def test_rows_are_sorted_with_nan_last(ask):
    assert names(ask("sort(a)")) == ["minus", "two", "three", "inf", "nan"]
    assert names(ask("sort_desc(a)")) == ["inf", "three", "two", "minus", "nan"]
    assert [row.value for row in ask("-sort_desc(a > 0)")] == [-math.inf, -3, -2]


@pytest.mark.parametrize("name", ["nan", "inf"])
@pytest.mark.parametrize("aggregation", ["stddev", "stdvar"])
def test_one_value_that_is_not_finite_has_no_deviation(ask, aggregation, name):
    (row,) = ask(f'{aggregation}(a{{n="{name}"}})')
    assert math.isnan(row.value)


@pytest.mark.parametrize("aggregation", ["sum", "avg"])
def test_no_sum_is_minus_zero(ask, aggregation):
    assert [row.value for row in ask(f"1 / {aggregation}(-vector(0))")] == [math.inf]


def test_atan2_is_of_no_metric_any_more(ask):
    assert [row.labels for row in ask("one atan2 one")] == [{"node": "n-1", "n": "one"}]
    assert [row.labels for row in ask("one atan2 2")] == [{"node": "n-1", "n": "one"}]


def test_a_filter_that_leaves_one_of_two_matches_is_ambiguous_all_the_same(ask):
    with pytest.raises(Unanswerable, match="many-to-one matching must be explicit"):
        ask("pair > on (n) one")
    with pytest.raises(Unanswerable, match="grouping labels must ensure unique matches"):
        ask('label_replace(one, "m", "z", "", "") < on (n) group_right (m) pair')
    assert [row.value for row in ask("pair > on (n) group_left () one")] == [5]


def test_a_many_to_many_match_is_told_with_its_series(ask):
    with pytest.raises(Unanswerable) as refused:
        ask("one + on (n) pair")
    assert str(refused.value) == (
        'found duplicate series for the match group {n="one"} on the right hand-side of the operation: '
        '[{__name__="pair", m="x", n="one", node="n-1"}, {__name__="pair", m="y", n="one", node="n-1"}];'
        "many-to-many matching not allowed: matching labels must be unique on one side"
    )


def test_a_dot_matches_the_end_of_a_line(ask):
    (row,) = ask('label_replace(text, "path", "$1", "path", "(f.+)d")')
    assert row.labels["path"] == "first\nsecon"


def test_label_names_are_any_text(ask):
    (row,) = ask('label_join(one, "a name", "-", "n", "node")')
    assert row.labels["a name"] == "one-n-1"
    assert ask('count_values("ä", one)')[0].labels == {"ä": "2"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("topk(NaN, a)", "Parameter value is NaN"),
        ("topk(1e19, nothing)", r"Scalar value 1e\+19 overflows int64"),
        ("topk(scalar(a{n='inf'}), a)", "overflows int64"),
        ("hour(a)", "hour.. takes Unix times"),
        ("year(vector(1e12))", "years 1 to 9999"),
        ('histogram_quantile(0.5, label_replace(p_bucket, "le", "NaN", "le", "2"))', 'le="NaN"'),
        ('histogram_quantile(0.5, label_replace(p_bucket, "le", "0x1p4", "le", "2"))', 'le="0x1p4"'),
        ('histogram_quantile(0.5, {__name__=~"[pq]_bucket"})', "same labelset"),
        ('label_replace(one, "x", "y", "n", "(?=one)")', "invalid perl operator"),
    ],
)
def test_what_has_no_answer_says_why(ask, query, message):
    with pytest.raises(Unanswerable, match=message):
        ask(query)


def test_text_in_backticks_has_no_escapes():
    assert parse_selector(r"a{b=`\n`}")[-1].value == r"\n"
    assert [each.value for each in parse_selector('{a=`"`, # a ` in a comment\n b=`\\`}')] == ['"', "\\"]


@pytest.mark.parametrize(
    ("query", "small", "samples"),
    [
        ('count_values("v", a)', "count(a)", 6_000),
        # Never two of b at a time, so that each of a has all of them for partners.
        ("a * on (node) group_left () b", "a * on (m) group_left () b", 20_000),
    ],
)
def test_a_result_with_many_rows_is_counted_before_it_is_made(tmp_path, query, small, samples):
    path, times_ms = tmp_path / "metrics.sqlite3", np.arange(50) * 400_000
    rows = [named("a", [(at, float(place)) for at in times_ms.tolist()], n=str(place)) for place in range(50)]
    rows += [named("b", [(at, 1.0)], m=str(at)) for at in times_ms.tolist()]
    store(path, rows, Owner("node", "n-1"))

    def rows_of(text: str, most: int) -> int:
        value = Evaluation(times_ms, Reader(path).select, Budget(most, 60)).evaluate(parse(text))
        assert isinstance(value, Vector)
        return len(list(series_of(value, times_ms)))

    assert rows_of(query, 10**6) == 50
    assert rows_of(small, samples) in (0, 1)
    with pytest.raises(TooMuch):
        rows_of(query, samples)


@pytest.mark.parametrize(
    ("aggregation", "values", "expected"),
    [
        ("sum", [1e20, 1.0, -1e20], 1.0),
        ("avg", [1e20, 3.0, -1e20], 1.0),
        ("sum", [1e308, 1e308, -1e308], math.inf),
        ("avg", [1e308, 1e308, 1e308], 1e308),
        ("sum", [1e308, 1e308, -math.inf], math.nan),
        ("avg", [1e308, 1e308, -math.inf], -math.inf),
        ("sum", [math.inf, 1.0, math.inf], math.inf),
        ("sum", [math.inf, 1.0, -math.inf], math.nan),
        ("sum", [math.nan, 1e308, 1e308], math.nan),
        ("sum", [0.1] * 10, 1.0),
        ("stdvar", [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], 22.5),
        ("stddev", [0.1] * 10, 0.0),
    ],
)
def test_large_numbers_are_summed_as_in_version_3(tmp_path, aggregation, values, expected):
    path = tmp_path / "metrics.sqlite3"
    store(path, [named("a", [(0, value)], n=str(place)) for place, value in enumerate(values)], Owner("node", "n-1"))
    (row,) = evaluated(Reader(path), f"{aggregation}(a)", 0)
    assert row.value == pytest.approx(expected, rel=1e-15, nan_ok=True)
