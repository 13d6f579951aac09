from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from gpu_agent.engines.own_series import OwnSeries, own_names, own_series
from tests.wire.engine_pages.reading import page_of, scanned
from wire.engine_pages.names import NAMES, OWN_SERIES
from wire.engine_pages.scan import OWN_LIMIT, NotMetrics

VLLM = page_of("vllm-0.32.0")


def passed(page, *own, kind="vllm"):
    return own_series(scanned(page, kind, own=own).own_lines)


def test_a_series_keeps_its_name_and_labels_and_its_rank():
    found = passed(VLLM, "vllm:num_requests_waiting_by_reason")
    assert found == [
        OwnSeries("vllm:num_requests_waiting_by_reason", {"rank": "0", "reason": "capacity"}, 0),
        OwnSeries("vllm:num_requests_waiting_by_reason", {"rank": "0", "reason": "deferred"}, 0),
    ]


def test_a_name_stands_for_the_whole_metric_and_nothing_it_was_created_at():
    names = {
        series.name for series in passed(VLLM, "vllm:prompt_tokens_by_source", "vllm:request_prefill_time_seconds")
    }
    assert names == {
        "vllm:prompt_tokens_by_source_total",
        *(f"vllm:request_prefill_time_seconds_{part}" for part in ("bucket", "sum", "count")),
    }


def test_a_star_takes_all_that_begin_so_but_what_they_were_created_at():
    names = {series.name for series in passed(VLLM, "vllm:prompt_tokens*")}
    assert "vllm:prompt_tokens_cached_total" in names
    assert "vllm:prompt_tokens_total" in names
    assert not any(name.endswith("_created") for name in names)


@pytest.mark.parametrize("name", ["vllm:prompt_tokens_by_source", "vllm:*"])
def test_a_canonical_metric_counts_beside_them_as_without_them(name):
    assert scanned(VLLM, own=(name,)).end() == scanned(VLLM).end()


def test_a_label_with_the_name_of_one_of_the_nodes_is_kept_as_exported():
    (series,) = passed(b'x{model="a",kind="b",node="c",gateway="d",pool="e",model_name="f",le=""} 1\nvllm:y 1\n', "x")
    assert series.labels == {
        f"exported_{name}": value
        for name, value in zip(("model", "kind", "node", "gateway", "pool"), "abcde", strict=True)
    }


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_text_of_a_label_comes_through(text):
    registry = CollectorRegistry()
    Gauge("x", "help", ["why"], registry=registry).labels(text).set(3)
    assert passed(generate_latest(registry), "x") == [OwnSeries("x", {"why": text}, 3)]


def test_no_number_is_no_series():
    assert passed(b"x NaN\nx_sum +Inf\nx_count 2\n", "x") == [OwnSeries("x_count", {}, 2)]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"".join(b'x{n="%d"} 1\n' % n for n in range(OWN_LIMIT + 1)), "too_many_own_series"),
        (b'x{model_name="a"} 1\nx{model_name="b"} 2\n', "own_series_twice"),
        (b"x 1\nx 2\n", "own_series_twice"),
        (b'x{why="\xe9t\xe9"} 1\n', "bad_own_series"),
        (b'x{why="' + b"y" * 513 + b'"} 1\n', "bad_own_series"),
        (b"x{" + b",".join(b'l%d="1"' % n for n in range(21)) + b"} 1\n", "bad_own_series"),
    ],
)
def test_what_would_not_be_taken_where_it_is_sent_is_refused_by_name(page, reason):
    with pytest.raises(NotMetrics, match=f"^{reason}: "):
        passed(page, "x")


def test_a_page_of_endless_own_series_is_not_kept():
    page = b"".join(b'x{n="%d"} 1\n' % n for n in range(50_000))
    assert len(scanned(page, own=("x",)).own_lines) == OWN_LIMIT + 1


def test_a_bad_line_of_its_own_costs_no_canonical_number():
    page = b'vllm:num_requests_running 1\nx{why="broken} 1\n'
    scan = scanned(page, own=("x",))
    assert (len(scan.end()), scan.own_lines) == (1, [])


def test_what_passes_is_as_configured_or_what_is_useful_in_general():
    assert own_names("vllm", None) == OWN_SERIES["vllm"]
    assert own_names("vllm", ()) == ()
    assert own_names("ollama", None) == ()
    assert own_names("triton", ("vllm:*",)) == ("vllm:*",)


def test_of_a_real_page_the_useful_ones_are_a_fraction_of_the_bound():
    assert 40 < len(passed(VLLM, *OWN_SERIES["vllm"])) < OWN_LIMIT / 5


def test_no_kind_has_useful_series_without_names():
    assert OWN_SERIES.keys() == NAMES.keys()
