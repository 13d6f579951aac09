"""Random queries on the samples of test_differential.py, of all forms, nested up to four deep; and random patterns.

What Prometheus leaves open is kept out: which rows topk chooses of equal ones. So is what multiplies the last bit of a
number into another result: values as labels, and waves of large numbers, of anything but samples as they are.
"""

from __future__ import annotations

from hypothesis import strategies as st

_DEPTH = 4

_NAMES = st.sampled_from(["temperature", "limit", "power", "tokens_total", "flapping", "info", "late"])
_MATCHERS = st.sampled_from(["", '{gpu="0"}', '{node=~"n-[12]"}', '{node!="n-3"}', '{gpu!~"1"}', '{driver=""}'])
_DURATIONS = st.sampled_from(["17s", "1m", "133s", "5m", "11m"])
_OFFSETS = st.sampled_from(["", "", " offset 1m", " offset 197s"])
_LABELS = st.lists(st.sampled_from(["node", "gpu", "driver"]), unique=True, max_size=2).map(", ".join)
_GROUPING = st.builds("{} ({})".format, st.sampled_from(["by", "without"]), _LABELS)
_MATCHING = st.one_of(st.just(""), st.builds("{} ({})".format, st.sampled_from(["on", "ignoring"]), _LABELS))
_MANY = st.builds(
    "{} {} ({})".format,
    st.sampled_from(["on (node)", "on (node, gpu)", "ignoring (gpu, driver, model)"]),
    st.sampled_from(["group_left", "group_right"]),
    st.sampled_from(["", "driver", "driver, model"]),
)
_OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "^", ">", "<=", "==", "!=", "> bool", "== bool"])
_SETS = st.sampled_from(["and", "or", "unless"])
_SAMPLES = st.builds("{}{}{}".format, _NAMES, _MATCHERS, _OFFSETS)
_COUNTERS = st.sampled_from(["tokens_total", "ttft_seconds_bucket", "info", "late"])
_OVER_TIME = st.sampled_from(
    ["delta", "irate", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time",
     "count_over_time", "last_over_time", "present_over_time", "idelta", "changes", "resets", "deriv",
     "stddev_over_time", "stdvar_over_time", "absent_over_time"]
)  # fmt: skip
_RATES = st.builds(
    "{}({}{}[{}]{})".format, st.sampled_from(["rate", "increase"]), _COUNTERS, _MATCHERS, _DURATIONS, _OFFSETS
)
_QUANTILES = st.sampled_from(["0", "0.3", "0.5", "0.95", "1", "-1", "2"])
_UNEQUAL = st.builds("{}{}".format, st.sampled_from(["temperature", "power"]), _MATCHERS)
_SCALARS = st.one_of(
    st.sampled_from(["0", "1", "2.5", "-3", "60", "1e6", "NaN", "+Inf", "pi()", "time()"]),
    st.builds("scalar({})".format, _SAMPLES),
    st.builds("scalar(max({}))".format, _SAMPLES),
)
_RELABELLED = st.sampled_from(
    [
        '"gpu", "$1", "node", "n-(.*)"',
        '"pair", "$2:$1", "node", "(n)-([12])"',
        '"node", "", "gpu", "1"',
        '"driver", "${0}x", "driver", "5?.*"',
        '"gpu", "", "missing", ""',
    ]
)

_LEAVES = st.one_of(
    _SAMPLES,
    _RATES,
    st.builds("{}({}{}[{}]{})".format, _OVER_TIME, _NAMES, _MATCHERS, _DURATIONS, _OFFSETS),
    st.builds("{} {} ({}, {})".format, st.sampled_from(["topk", "bottomk"]), _GROUPING, st.just("2"), _UNEQUAL),
    st.builds("{} {} ({})".format, st.sampled_from(["stddev", "stdvar"]), _GROUPING, _SAMPLES),
    st.builds('count_values {} ("value", {})'.format, _GROUPING, _SAMPLES),
    st.builds("{}({})".format, st.sampled_from(["sin", "cos", "tan", "acos", "acosh", "atanh", "timestamp"]), _SAMPLES),
    st.builds("{}({})".format, st.sampled_from(["minute", "hour", "day_of_week", "days_in_month", "year"]), _SAMPLES),
    st.builds("histogram_quantile({}, ttft_seconds_bucket{})".format, _QUANTILES, _OFFSETS),
    st.builds("histogram_quantile({}, sum {} (rate(ttft_seconds_bucket[2m])))".format, _QUANTILES, _GROUPING),
    st.builds("vector({})".format, _SCALARS),
)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    aggregations = st.sampled_from(["sum", "avg", "min", "max", "count", "group"])
    functions = st.sampled_from(
        ["abs", "ceil", "floor", "sgn", "absent", "-", "round", "sqrt", "atan", "asinh", "tanh", "deg", "rad",
         "sort", "sort_desc", "timestamp", "vector(scalar", "label_join"]
    )  # fmt: skip
    return st.one_of(
        st.builds("{} {} ({})".format, aggregations, _GROUPING, inner),
        st.builds("quantile {} ({}, {})".format, _GROUPING, _QUANTILES, inner),
        st.builds('count_values {} ("value", ({}) > bool {})'.format, _GROUPING, inner, _SCALARS),
        st.builds("({}) {} {}".format, inner, _OPERATORS, _SCALARS),
        st.builds("{} {} ({})".format, _SCALARS, _OPERATORS, inner),
        st.builds("({}) {} {} ({})".format, inner, _OPERATORS, _MATCHING, inner),
        st.builds("({}) {} {} ({})".format, inner, _OPERATORS, _MANY, inner),
        # Version 2 leaves the metric's name there.
        st.builds("-(({}) atan2 {} ({}))".format, inner, _MATCHING, inner),
        st.builds("({}) {} {} ({})".format, inner, _SETS, _MATCHING, inner),
        st.builds(_called, functions, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["clamp_min", "clamp_max"]), inner, _SCALARS),
        st.builds("clamp({}, {}, {})".format, inner, _SCALARS, _SCALARS),
        st.builds("label_replace({}, {})".format, inner, _RELABELLED),
    )


def _called(function: str, argument: str) -> str:
    match function:
        case "vector(scalar":
            return f"vector(scalar({argument}))"
        case "label_join":
            return f'label_join({argument}, "gpu", "/", "gpu", "node")'
    return f"{function}({argument})"


@st.composite
def _nested(draw: st.DrawFn, depth: int) -> str:
    return draw(_LEAVES if depth == 0 else st.one_of(_LEAVES, _grown(_nested(depth - 1))))


ANY_QUERY = _grown(_nested(_DEPTH - 1))

_ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        ".",
        r"\d",
        r"\w",
        r"\W",
        "[ab]",
        "[^a-]",
        r"[\d-]",
        "^",
        "$",
        r"\b",
        r"\B",
        "1",
        "(?i:A)",
        r"\pL",
        "[[:digit:]]",
    ]
)
ANY_PATTERN = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("({})".format, inner),
        st.builds(
            "(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?"])
        ),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "*?", "{1,2}", "{2,}"])),
    ),
    max_leaves=8,
)
ANY_VALUE = st.text("ab-1 ", max_size=8)
