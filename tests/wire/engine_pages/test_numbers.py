from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.wire.engine_pages.reading import page_of, read
from wire.engine_pages.names import CANONICAL, NAMES
from wire.engine_pages.scan import NotMetrics

VLLM = page_of("vllm-0.32.0")
INFO = b'vllm:cache_config_info{engine="%d",kv_cache_size_tokens="%d",num_gpu_blocks="40"} 1.0\n'
USAGE = b'vllm:kv_cache_usage_perc{engine="%d"} %f\n'
TTFT = (
    b'vllm:time_to_first_token_seconds_bucket{engine="%(rank)d",le="0.3"} 2.0\n'
    b'vllm:time_to_first_token_seconds_bucket{engine="%(rank)d",le="1"} 3.0\n'
    b'vllm:time_to_first_token_seconds_bucket{engine="%(rank)d",le="+Inf"} 4.0\n'
    b'vllm:time_to_first_token_seconds_count{engine="%(rank)d"} 4.0\n'
    b'vllm:time_to_first_token_seconds_sum{engine="%(rank)d"} 5.5\n'
)


def test_a_real_vllm_page_says_what_a_full_parser_reads_in_it():
    found = read(VLLM)
    parsed = {
        (sample.name, sample.labels.get("le", sample.labels.get("finished_reason", ""))): sample.value
        for family in text_string_to_metric_families(VLLM.decode())
        for sample in family.samples
    }
    expected = {
        f"{canonical}_{part}[{le}]" if le else f"{canonical}_{part}": value
        for canonical, name in (
            ("ttft_seconds", "time_to_first_token_seconds"),
            ("inter_token_latency_seconds", "inter_token_latency_seconds"),
            ("e2e_seconds", "e2e_request_latency_seconds"),
            ("queue_seconds", "request_queue_time_seconds"),
        )
        for part in ("bucket", "sum", "count")
        for (series, le), value in parsed.items()
        if series == f"vllm:{name}_{part}"
    }
    expected |= {
        f"requests_finished_total[{reason}]": parsed["vllm:request_success_total", reason]
        for reason in ("stop", "length", "abort", "error", "repetition")
    }
    expected |= {
        "requests_running": parsed["vllm:num_requests_running", ""],
        "requests_waiting": parsed["vllm:num_requests_waiting", ""],
        "kv_cache_usage_ratio": parsed["vllm:kv_cache_usage_perc", ""],
        "kv_cache_capacity_tokens": 1_048_576,
        "preemptions_total": parsed["vllm:num_preemptions_total", ""],
        "iterations_total": parsed["vllm:iteration_tokens_total_count", ""],
        "prompt_tokens_total": parsed["vllm:prompt_tokens_total", ""],
        "generation_tokens_total": parsed["vllm:generation_tokens_total", ""],
        "prefix_cache_queries_tokens_total": parsed["vllm:prefix_cache_queries_total", ""],
        "prefix_cache_hits_tokens_total": parsed["vllm:prefix_cache_hits_total", ""],
        "process_start_time_seconds": parsed["process_start_time_seconds", ""],
        "awake": 1,
    }
    assert found == expected
    assert found["prompt_tokens_total"] == 54, "the page is of an engine that had work"
    assert found["ttft_seconds_bucket[1.0]"] == 3


@pytest.mark.parametrize(("states", "awake"), [((1, 1), 1), ((1, 0), 0), ((0, 0), 0)])
def test_a_server_is_as_awake_as_its_sleepiest_rank(states, awake):
    lines = ["vllm:num_requests_running 0"]
    for rank, state in enumerate(states):
        for name, value in (("awake", state), ("weights_offloaded", 1 - state), ("discard_all", 0)):
            lines.append(f'vllm:engine_sleep_state{{engine="{rank}",sleep_state="{name}"}} {value}')
    assert read("\n".join([*lines, ""]).encode())["awake"] == awake


def test_an_old_vllm_page_gives_the_same_names():
    assert read(page_of("vllm-0.8")) == {
        "requests_running": 7,
        "requests_waiting": 2,
        "kv_cache_usage_ratio": 0.625,
        "prefix_cache_queries_tokens_total": 400,
        "prefix_cache_hits_tokens_total": 100,
        "preemptions_total": 3,
        "requests_finished_total[stop]": 11,
        "inter_token_latency_seconds_bucket[0.01]": 4,
        "inter_token_latency_seconds_bucket[+Inf]": 9,
        "inter_token_latency_seconds_count": 9,
        "inter_token_latency_seconds_sum": 0.5,
    }


def test_vllm_before_0_7_called_the_time_in_the_queue_otherwise():
    page = b"".join(
        b'vllm:time_in_queue_requests_%b{model_name="m"%b} 2\n' % part
        for part in ((b"bucket", b',le="+Inf"'), (b"sum", b""), (b"count", b""))
    )
    assert read(page) == {"queue_seconds_bucket[+Inf]": 2, "queue_seconds_sum": 2, "queue_seconds_count": 2}


def test_of_an_old_and_a_new_name_on_one_page_the_new_one_counts():
    page = b"vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.2\nvllm:gpu_prefix_cache_hits_total 5\n"
    assert read(page) == {"kv_cache_usage_ratio": 0.2, "prefix_cache_hits_tokens_total": 5}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "sglang",
            {
                "requests_running": 10,
                "requests_waiting": 1,
                "kv_cache_usage_ratio": 0.7,
                "kv_cache_capacity_tokens": 4000,
                "preemptions_total": 2,
                "prompt_tokens_total": 500,
                "generation_tokens_total": 250,
                "prefix_cache_queries_tokens_total": 500,
                "prefix_cache_hits_tokens_total": 128,
                "requests_finished_total[other]": 40,
                "requests_finished_total[abort]": 4,
                "ttft_seconds_bucket[0.1]": 1,
                "inter_token_latency_seconds_count": 250,
                "e2e_seconds_sum": 3,
                "queue_seconds_sum": 0.25,
            },
        ),
        (
            "tgi",
            {
                "requests_running": 3,
                "requests_waiting": 5,
                "iterations_total": 66,
                "prompt_tokens_total": 120,
                "generation_tokens_total": 64,
                "requests_finished_total[other]": 12,
                "requests_finished_total[error]": 2,
                "requests_finished_total[abort]": 3,
                "tpot_seconds_bucket[0.02]": 1,
                "tpot_seconds_sum": 0.05,
                "e2e_seconds_bucket[0.5]": 1,
                "queue_seconds_sum": 0.125,
            },
        ),
        (
            "llamacpp",
            {
                "requests_running": 1,
                "requests_waiting": 4,
                "iterations_total": 424,
                "prompt_tokens_total": 256,
                "generation_tokens_total": 32,
                "prefix_cache_queries_tokens_total": 256,
                "prefix_cache_hits_tokens_total": 160,
            },
        ),
        (
            "trtllm",
            {
                "requests_running": 8,
                "requests_waiting": 1,
                "kv_cache_usage_ratio": 0.75,
                "prompt_tokens_total": 900,
                "generation_tokens_total": 300,
                "requests_finished_total[length]": 6,
                "requests_finished_total[abort]": 1,
                "requests_finished_total[other]": 2,
                "requests_finished_total[error]": 6,
                "kv_cache_capacity_tokens": 100_000,
                "prefix_cache_queries_tokens_total": 1280,
                "prefix_cache_hits_tokens_total": 960,
                "tpot_seconds_bucket[0.01]": 3,
                "ttft_seconds_count": 9,
            },
        ),
    ],
)
def test_other_kinds_give_the_same_names(kind, expected):
    found = read(page_of(kind), kind)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    if kind == "tgi":
        assert "kv_cache_capacity_tokens" not in found, "a batch's limit is not the size of the cache"
    if kind == "trtllm":
        assert "preemptions_total" not in found, "how many are paused now is no count of preemptions"


def test_the_table_names_only_canonical_metrics():
    assert {name for names in NAMES.values() for name in names} <= CANONICAL.keys()


def test_the_capacity_of_a_vllm_page_is_its_own_number():
    # 8192 blocks of 128 tokens stand beside it.
    page = VLLM.replace(b'kv_cache_size_tokens="1048576"', b'kv_cache_size_tokens="463459"')
    assert read(page)["kv_cache_capacity_tokens"] == 463_459


def test_data_parallel_ranks_add_up():
    counters = b"".join(
        b'vllm:num_requests_running{engine="%d"} 3\nvllm:prompt_tokens_total{engine="%d"} 50\n'
        b'vllm:request_success_total{engine="%d",finished_reason="stop"} 7\n' % (rank, rank, rank)
        for rank in range(3)
    )
    page = counters + TTFT % {b"rank": 0} + TTFT % {b"rank": 1} + INFO % (0, 320) + INFO % (1, 321)
    assert read(page) == {
        "requests_running": 9,
        "prompt_tokens_total": 150,
        "requests_finished_total[stop]": 21,
        "kv_cache_capacity_tokens": 641,
        "ttft_seconds_bucket[0.3]": 4,
        "ttft_seconds_bucket[1.0]": 6,
        "ttft_seconds_bucket[+Inf]": 8,
        "ttft_seconds_count": 8,
        "ttft_seconds_sum": 11,
    }


@given(st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 1000)), min_size=1, max_size=8))
def test_kv_use_of_ranks_is_what_the_tokens_in_use_are_of_all_tokens(ranks):
    page = b"".join(
        INFO % (rank, capacity) + USAGE % (rank, used / 1000) for rank, (capacity, used) in enumerate(ranks)
    )
    used_tokens = sum(capacity * used / 1000 for capacity, used in ranks)
    assert read(page)["kv_cache_usage_ratio"] == pytest.approx(used_tokens / sum(capacity for capacity, _ in ranks))


def test_kv_use_of_ranks_of_unknown_capacity_is_their_mean():
    page = USAGE % (0, 0.2) + USAGE % (1, 0.6)
    assert read(page + INFO % (0, 900))["kv_cache_usage_ratio"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    "sample",
    [
        b'vllm:cache_config_info{engine="0",num_gpu_blocks="8192",block_size="128"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="None"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="-5"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="1e6"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="' + b"9" * 5000 + b'"} 1.0\n',
        b'vllm:cache_config_info_created{kv_cache_size_tokens="5"} 1.0\n',
        b'vllm:cache_config_info{x="y,kv_cache_size_tokens=\\"5\\""} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="5"} 1.0\nvllm:cache_config_info{engine="1"} 1.0\n',
        b"vllm:kv_cache_usage_perc NaN\n",
        b"vllm:kv_cache_usage_perc +Inf\n",
        b"vllm:kv_cache_usage_perc -0.5\n",
        b"vllm:num_preemptions_total NaN\n",
        b'vllm:request_success_total{finished_reason="stop"} -Inf\n',
        TTFT.replace(b"4.0", b"NaN") % {b"rank": 0},
        b"".join(line + b"\n" for line in (TTFT % {b"rank": 0}).splitlines() if b"+Inf" not in line),
        b"".join(line + b"\n" for line in (TTFT % {b"rank": 0}).splitlines() if b"_sum" not in line),
    ],
)
def test_what_a_page_does_not_say_has_no_number(sample):
    assert read(b"vllm:num_requests_running 1\n" + sample) == {"requests_running": 1}


@pytest.mark.parametrize("bound", [b"soon", b"NaN", b""])
def test_a_bucket_without_a_bound_is_refused(bound):
    with pytest.raises(NotMetrics, match=r"^bad_line: "):
        read(TTFT.replace(b'"0.3"', b'"' + bound + b'"') % {b"rank": 0})


def test_buckets_without_end_are_refused():
    page = b"".join(b'vllm:time_to_first_token_seconds_bucket{le="%d"} 1\n' % bound for bound in range(101))
    with pytest.raises(NotMetrics, match=r"^too_many_buckets: "):
        read(page)


def test_of_the_ranks_that_run_the_same_requests_one_counts():
    page = b"".join(
        b"sglang:%b{%b} %d\n"
        % (name, b'dp_rank="%d",pp_rank="%d",tp_rank="%d"' % (dp, pp, 2 * dp + tp), value * (dp + 1))
        for name, value in (
            (b"num_running_reqs", 4),
            (b"max_total_num_tokens", 1000),
            (b"num_retracted_requests_total", 1),
        )
        for dp in range(2)
        for pp in range(2)
        for tp in range(2)
    )
    assert read(page, "sglang") == {
        "requests_running": 12,
        "kv_cache_capacity_tokens": 3000,
        "preemptions_total": 3,
    }


@pytest.mark.parametrize("label", [b"a" * 60_000, b"a=" * 30_000, b'a="x' + b"\\" * 60_000 + b'"', b"a " * 30_000])
def test_labels_as_long_as_a_line_may_be_hold_nothing_up(label):
    begun_seconds = time.process_time()
    assert read(b"vllm:kv_cache_usage_perc{%b} 0.5\n" % label) == {"kv_cache_usage_ratio": 0.5}
    assert time.process_time() - begun_seconds < 1


@pytest.mark.parametrize(
    "tokens_per_block",
    [
        b"",
        b"trtllm_kv_cache_tokens_per_block NaN\n",
        b'trtllm_kv_cache_tokens_per_block{pool="0"} 32\ntrtllm_kv_cache_tokens_per_block{pool="1"} 64\n',
    ],
)
def test_blocks_are_no_tokens_where_a_page_does_not_say_how_many_one_has(tokens_per_block):
    page = b"trtllm_kv_cache_max_blocks 10\ntrtllm_kv_cache_reused_blocks_total 5\ntrtllm_num_requests_running 1\n"
    assert read(page + tokens_per_block, "trtllm") == {"requests_running": 1}


def test_what_sglang_counts_by_priority_is_in_its_sum_already():
    page = b'sglang:num_queue_reqs{priority=""} 5\nsglang:num_queue_reqs{priority="1"} 5\n'
    assert read(page, "sglang") == {"requests_waiting": 5}


@pytest.mark.parametrize(("share", "expected"), [(b"1.0000000001", 1.0), (b"1.2", None), (b"62.5", None)])
def test_no_share_of_the_cache_is_larger_than_all_of_it(share, expected):
    found = read(b"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc " + share + b"\n")
    assert found.get("kv_cache_usage_ratio") == expected


def test_triton_counts_microseconds_and_has_no_buckets():
    assert read(page_of("triton"), "triton", served_model="llama") == pytest.approx(
        {
            "requests_waiting": 6,
            "requests_finished_total[other]": 20,
            "requests_finished_total[error]": 4,
            "requests_finished_total[abort]": 2,
            "e2e_seconds_sum": 42.5,
            "e2e_seconds_count": 20,
            "queue_seconds_sum": 1.25,
            "queue_seconds_count": 20,
        }
    )


def test_on_a_page_of_triton_with_vllm_inside_what_vllm_says_holds():
    assert read(page_of("triton") + VLLM, "triton", served_model="llama") == read(VLLM)


def test_what_triton_alone_says_stays_where_vllm_inside_it_says_little():
    # As Triton's vLLM backend shows it: eight of vLLM's metrics, under the name of Triton's model.
    bridged = (TTFT % {b"rank": 0}).replace(b'engine="0"', b'model="llama",version="1"')
    found = read(page_of("triton") + bridged, "triton", served_model="llama")
    assert (found["ttft_seconds_count"], found["requests_waiting"], found["e2e_seconds_sum"]) == (4, 6, 42.5)


def test_a_page_that_any_python_program_has_says_nothing_of_an_engine():
    with pytest.raises(NotMetrics, match=r"^not_metrics: the page has no metric of vllm's"):
        read(b"process_start_time_seconds 1.7e+09\npython_info 1\n")
