from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.engine_pages.reading import page_of, read, read_ranks

RANKS = b"".join(
    b'vllm:num_requests_running{engine="%d"} %d\nvllm:num_requests_waiting{engine="%d"} 0\n'
    b'vllm:kv_cache_usage_perc{engine="%d"} %f\nvllm:iteration_tokens_total_count{engine="%d"} %d\n'
    % (rank, 2 + rank, rank, rank, 0.2 + 0.4 * rank, rank, 100 * rank)
    for rank in range(2)
)
LATENCY = b"".join(
    b'vllm:inter_token_latency_seconds_%b{engine="1"%b} 9\n' % (part, le)
    for part, le in ((b"bucket", b',le="+Inf"'), (b"sum", b""), (b"count", b""))
)


def test_ranks_of_one_page_are_kept_apart_beside_their_sum():
    assert read(RANKS)["requests_running"] == 5
    assert read_ranks(RANKS) == {
        "0": {"requests_running": 2, "requests_waiting": 0, "iterations_total": 0, "kv_cache_usage_ratio": 0.2},
        "1": {"requests_running": 3, "requests_waiting": 0, "iterations_total": 100, "kv_cache_usage_ratio": 0.6},
    }


def test_of_a_histogram_a_rank_has_the_count():
    assert read_ranks(RANKS + LATENCY)["1"]["inter_token_latency_seconds_count"] == 9


@pytest.mark.parametrize("page", [page_of("vllm-0.32.0"), RANKS.replace(b'"1"', b'"one"'), page_of("vllm-0.8")])
def test_a_page_of_one_rank_has_none_apart(page):
    assert read_ranks(page) == {}


@given(
    st.dictionaries(st.integers(0, 99), st.tuples(st.integers(0, 50), st.integers(0, 10**9)), min_size=2, max_size=8)
)
def test_the_ranks_add_up_to_what_the_server_says(ranks):
    page = b"".join(
        b'vllm:num_requests_running{engine="%d"} %d\nvllm:iteration_tokens_total_count{engine="%d"} %d\n'
        % (rank, running, rank, iterations)
        for rank, (running, iterations) in ranks.items()
    )
    apart, together = read_ranks(page), read(page)
    assert apart.keys() == {str(rank) for rank in ranks}
    for name in ("requests_running", "iterations_total"):
        assert sum(numbers[name] for numbers in apart.values()) == together[name]


def test_ranks_that_run_the_same_requests_are_one_rank():
    page = b"".join(
        b'sglang:num_running_reqs{dp_rank="%d",moe_ep_rank="%d",tp_rank="%d"} %d\n' % (dp, tp, tp, dp + 1)
        for dp in range(2)
        for tp in range(4)
    )
    assert read_ranks(page, "sglang") == {"0": {"requests_running": 1}, "1": {"requests_running": 2}}


def test_what_is_counted_for_the_server_alone_is_of_no_rank():
    # SGLang's tokens are counted where requests come in, before a rank is chosen.
    assert read_ranks(page_of("sglang"), "sglang")["0"].keys() == {
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
    }
