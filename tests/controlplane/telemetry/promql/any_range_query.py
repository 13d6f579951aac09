"""Random queries with subqueries, on the samples of test_differential.py, for windows of no edge: see range_queries.py.

`rate` of a gauge is kept out: there Debian's Prometheus is not version 3. Of moments in seconds only ages are taken, as
differences between means of moments are made of the last bits, which the versions do not share.
"""

from __future__ import annotations

from hypothesis import strategies as st

_MATCHERS = ["", '{gpu="0"}', '{node=~"n-[12]"}', '{node!="n-3"}', '{driver=""}']
_SAMPLES = st.builds(
    "{}{}".format,
    st.sampled_from(["temperature", "limit", "power", "tokens_total", "flapping", "info", "late"]),
    st.sampled_from(_MATCHERS),
)
_OFFSETS = st.sampled_from(["", "", " offset 3m", " offset -2m", " offset 437ms"])
_MOMENTS = st.sampled_from(["", "", " @ end() offset 11m", " @ start() offset -17m"])
_FUNCTIONS = st.sampled_from(
    ["delta", "irate", "idelta", "deriv", "changes", "resets", "sum_over_time", "avg_over_time", "min_over_time",
     "max_over_time", "count_over_time", "last_over_time", "present_over_time", "stddev_over_time", "stdvar_over_time",
     "absent_over_time"]
)  # fmt: skip
_RANGES = st.sampled_from(["20s1ms", "31s1ms", "5m1ms", "11m1ms", "20m1ms"])
_STEPS = st.sampled_from(["", "7s", "17s", "30s", "1m", "5m"])

_LEAVES = st.one_of(
    _SAMPLES,
    st.builds("{}{}".format, _SAMPLES, _MOMENTS),
    st.builds("(time() - timestamp({}{}))".format, _SAMPLES, _OFFSETS),
    st.builds("rate(tokens_total[{}]{})".format, _RANGES, _OFFSETS),
    st.builds("{}({}[{}]{})".format, _FUNCTIONS, _SAMPLES, _RANGES, st.one_of(_OFFSETS, _MOMENTS)),
    st.builds("predict_linear({}[{}]{}, 60)".format, _SAMPLES, _RANGES, _OFFSETS),
    st.builds("quantile_over_time(0.3, {}[{}]{})".format, _SAMPLES, _RANGES, _OFFSETS),
)


def _subquery(inner: st.SearchStrategy[str], modifiers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("{}(({})[{}:{}]{})".format, _FUNCTIONS, inner, _RANGES, _STEPS, modifiers)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        _subquery(inner, st.just("")),
        # What has `@` or an offset itself takes no `@` within.
        _subquery(inner.filter(lambda text: "@" not in text), st.one_of(_OFFSETS, _MOMENTS)),
        st.builds("{} by (node) ({})".format, st.sampled_from(["max", "min", "count"]), inner),
        st.builds("({}) {} {}".format, inner, st.sampled_from(["+", "*", "> bool"]), st.sampled_from(["2.5", "60"])),
    )


ANY_RANGE_QUERY = st.recursive(_LEAVES, _grown, max_leaves=3)
