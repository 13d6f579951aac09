from __future__ import annotations

import contextlib
import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.engine_pages.reading import TEXT, page_of, read, scanned
from wire.engine_pages.numbers import readings
from wire.engine_pages.scan import NotMetrics, Scan

VLLM = page_of("vllm-0.32.0")
RUNNING = b'vllm:num_requests_running{engine="0",model_name="m"} '


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "not_metrics"),
        (b"<html>\n<body>vllm:num_requests_running 5</body>\n</html>\n", "not_metrics"),
        (b'{"vllm:num_requests_running": 5}\n', "not_metrics"),
        (bytes(range(256)) * 40 + b"\n", "not_metrics"),
        (VLLM.decode().encode("utf-16"), "not_metrics"),
        (gzip.compress(VLLM) + b"\n", "not_metrics"),
        (b"x" * 100_000, "not_metrics"),
        (b"node_load1 0.5\n", "not_metrics"),
        (VLLM[:-1], "cut_short"),
        (VLLM[: len(VLLM) // 2], "cut_short"),
        (RUNNING + b"\n", "bad_line"),
        (b"vllm:num_requests_running\n", "bad_line"),
        (RUNNING + b"many\n", "bad_line"),
        (RUNNING + b"1.2.3\n", "bad_line"),
        (RUNNING + b"1_000\n", "bad_line"),
        (RUNNING + b"1 2 3\n", "bad_line"),
        (b'vllm:num_requests_running{engine="0 4\n', "bad_line"),
        (b'vllm:num_requests_running{engine="0"\n', "bad_line"),
        (RUNNING + b"1\n" + RUNNING + b"2\n", "sample_twice"),
        (b"".join(b'vllm:prompt_tokens_total{engine="%d"} 1\n' % n for n in range(30_001)), "too_many_samples"),
        (
            b"".join(b'vllm:prompt_tokens_total{%bengine="%d"} 1\n' % (9000 * b'a="",', n) for n in range(12)),
            "too_many_labels",
        ),
    ],
)
def test_what_is_no_whole_metrics_page_is_refused_by_name(page, reason):
    with pytest.raises(NotMetrics, match=f"^{reason}: "):
        read(page)


@pytest.mark.parametrize("media_type", ["text/html", "application/json", "application/octet-stream", ""])
def test_a_page_that_says_it_is_something_else_is_refused_unread(media_type):
    with pytest.raises(NotMetrics, match=r"^not_metrics: "):
        read(VLLM, media_type=media_type)


def test_it_takes_what_the_text_format_allows():
    page = (
        b"# HELP vllm:num_requests_running A text with vllm:num_requests_waiting 9\n"
        b"\n"
        b'vllm:num_requests_running{engine="0",model_name="a}b,\\"c\\" vllm:x 7",} 1e2 1700000000000\n'
        b"vllm:num_requests_waiting \t +3\n"
        b"vllm:num_requests_waiting_by_reason 8\n"
    )
    assert read(page) == {"requests_running": 100, "requests_waiting": 3}


def test_open_metrics_is_read_with_its_exemplars_and_ends_with_its_end():
    page = (
        b"# TYPE vllm:prompt_tokens counter\n"
        b'vllm:prompt_tokens_total{engine="0"} 54.0 1700000000.5 # {trace_id="x"} 1.0 1700000000.1\n'
        b'vllm:prompt_tokens_created{engine="0"} 1.7e+09\n'
        b"# EOF"
    )
    for end in (b"", b"\n"):
        assert read(page + end, media_type="application/openmetrics-text") == {"prompt_tokens_total": 54}
    with pytest.raises(NotMetrics, match=r"^cut_short: "):
        read(page.removesuffix(b"# EOF"), media_type="application/openmetrics-text")


def test_a_counter_is_the_same_with_and_without_total_and_counts_once():
    assert read(b"vllm:prompt_tokens 5\n") == {"prompt_tokens_total": 5}
    assert read(b"vllm:prompt_tokens 5\nvllm:prompt_tokens_total 6\n") == {"prompt_tokens_total": 6}


@given(st.integers(1, 3000))
def test_how_a_page_is_cut_into_chunks_does_not_matter(chunk_bytes):
    assert read(VLLM, chunk_bytes=chunk_bytes) == read(VLLM)


@given(st.binary(max_size=300), st.integers(0, 20_000))
def test_whatever_a_page_holds_it_is_read_or_refused(noise, place):
    page = VLLM[:20_000]
    with contextlib.suppress(NotMetrics):
        found = read(page[:place] + noise + page[place:] + b"\n")
        assert all(math.isfinite(value) and value >= 0 for value in found.values())


@given(st.integers(1, 3000))
def test_how_a_page_is_cut_does_not_matter_to_an_engines_own_series(chunk_bytes):
    whole, cut = (scanned(VLLM, own=("vllm:prompt_tokens*",), chunk_bytes=size) for size in (len(VLLM), chunk_bytes))
    assert whole.own_lines
    assert cut.own_lines == whole.own_lines


def test_a_reader_of_few_signals_is_held_up_by_no_other():
    scan = Scan("vllm", TEXT, signals=frozenset({"requests_running", "kv_cache_usage_ratio"}))
    scan.feed(VLLM + b"vllm:prompt_tokens_total rubbish\n")
    found = {reading.name for reading in readings("vllm", scan.end())}
    assert found == {"requests_running", "kv_cache_usage_ratio"}
    with pytest.raises(NotMetrics, match="bad_line"):
        scanned(VLLM + b"vllm:prompt_tokens_total rubbish\n")


def test_a_signal_brings_what_it_is_multiplied_with():
    page = b"trtllm_kv_cache_max_blocks 1000\ntrtllm_kv_cache_tokens_per_block 32\ntrtllm_num_requests_running 1\n"
    scan = Scan("trtllm", TEXT, signals=frozenset({"kv_cache_capacity_tokens"}))
    scan.feed(page)
    assert readings("trtllm", scan.end()) == [("kv_cache_capacity_tokens", (), 32_000)]
