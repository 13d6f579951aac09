"""What is refused before a sample is read, and how durations and moments are read."""

from __future__ import annotations

from datetime import timedelta

import promql_parser as ast
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.promql.errors import BadQuery, Unsupported
from controlplane.telemetry.promql.grammar import milliseconds, moment_ms, parse


@pytest.mark.parametrize(
    "query",
    [
        "double_exponential_smoothing(a[5m], 0.5, 0.5)",
        "end()",
        "histogram_quantiles(a, 'q', 0.5)",
        "info(a)",
        "mad_over_time(a[5m])",
        "max_of(1, 2)",
        "min_of(1, 2)",
        "range()",
        "sort_by_label(a, 'b')",
        "sort_by_label_desc(a, 'b')",
        "start()",
        "start_timestamp(a)",
        "step()",
        "ts_of_first_over_time(a[5m])",
        "ts_of_last_over_time(a[5m])",
        "ts_of_max_over_time(a[5m])",
        "ts_of_min_over_time(a[5m])",
        "limitk(1, a)",
        "limit_ratio(0.5, a)",
        "histogram_avg(a)",
        "histogram_count(a)",
        "histogram_fraction(0, 1, a)",
        "histogram_stddev(a)",
        "histogram_stdvar(a)",
        "histogram_sum(a)",
    ],
)
def test_functions_that_are_experimental_or_of_native_histograms_are_refused_by_name(query):
    with pytest.raises(Unsupported, match=rf"(function|aggregation) {query.split('(', maxsplit=1)[0]}\(\)"):
        parse(f"max_over_time(vector(1)[5m:]) + ({query})")


def test_a_function_that_prometheus_dropped_is_unknown():
    with pytest.raises(BadQuery, match="holt_winters"):
        parse("holt_winters(a[5m], 0.5, 0.5)")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("a @ -1", "before 1970"),
        ("a[5m] @ -0.5", "before 1970"),
        ("a[5m:] @ -1", "before 1970"),
        ("a[5m:0.0001]", "less than a millisecond"),
        ("timestamp(+a)", "unary plus"),
        ("absent ( (+ a))", "unary plus"),
        ("absent(# it's\n+a)  # it's", "unary plus"),
        ("timestamp(a @ 5 offset 1m)", "both @ and offset"),
        ("timestamp((a @ end() offset 1m))", "both @ and offset"),
        ("max_over_time((a @ 5)[5m:] offset 1m)", "within a subquery"),
        ("max_over_time(rate(a[5m] @ 5)[5m:] @ end())", "within a subquery"),
        ("max_over_time(rate(a[5m:] @ 5)[5m:] @ end())", "within a subquery"),
        ("max_over_time((a + topk(scalar(b @ 5), a))[5m:] offset -1m)", "within a subquery"),
    ],
)
def test_what_cannot_be_answered_as_prometheus_does_is_refused_by_name(query, what):
    with pytest.raises(Unsupported, match=what):
        parse(query)


@pytest.mark.parametrize(
    "query",
    [
        "a offset 300y",
        "a[300y]",
        "a[300y:]",
        "a[5m:300y]",
        "a[5m:] offset -300y",
        "a[1e300]",
        "a[5m:1e300]",
        "a offset 1e300",
    ],
)
def test_durations_that_prometheus_does_not_take_are_no_promql(query):
    with pytest.raises(BadQuery, match="duration out of range"):
        parse(query)


@pytest.mark.parametrize("query", ["a @ 1e15", "a[5m] @ 1e300", "a[5m:] @ 1e300"])
def test_moments_beyond_all_time_are_no_promql(query):
    with pytest.raises(BadQuery, match="timestamp out of bounds"):
        parse(query)


@pytest.mark.parametrize(
    "query",
    [
        "timestamp(a) + 1",
        "timestamp(a @ 5)",
        "timestamp(a offset 5m)",
        "max_over_time((a @ 5)[5m:])",
        "max_over_time((a offset 5m)[5m:] @ 5)",
        'timestamp(a{b="(+c"})',
        "a[1.5:0.5]",
    ],
)
def test_what_is_near_to_what_is_refused_is_taken(query):
    assert parse(query)


def test_a_quote_within_a_comment_hides_no_operators():
    with pytest.raises(BadQuery, match="200 operators"):
        parse("# '\n" + "(" * 5000 + "a" + ")" * 5000 + "  # '")


def test_a_string_without_an_end_is_one_string_and_hides_what_follows():
    with pytest.raises(BadQuery, match="unterminated"):
        parse("'" + r"\'(" * 4000)
    with pytest.raises(BadQuery, match="unterminated"):
        parse("'\n" + "(" * 16_000)


@given(microseconds=st.integers(-(10**12), 10**12))
def test_a_duration_is_cut_to_whole_milliseconds(microseconds):
    assert milliseconds(timedelta(microseconds=microseconds)) == int(microseconds / 1000)


@given(moment=st.integers(0, 2**43))
def test_a_moment_is_read_to_the_millisecond(moment):
    tree = parse(f"a @ {moment // 1000}.{moment % 1000:03}")
    assert isinstance(tree, ast.VectorSelector)
    assert tree.at is not None
    assert moment_ms(tree.at) == moment
