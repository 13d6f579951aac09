from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.start_phases import SGLANG_METRICS, of_log, of_sglang, read_log
from tests.wire.engine_pages.reading import page_of, scanned

# Lines as vLLM 0.32 wrote them, and those of older versions, without their heads.
BEGINNING = "(APIServer pid=9) INFO 11-30 00:06:32 [api_utils.py:286] non-default args: {'port': 18000}\n"
NOW = """\
(Worker pid=27610) INFO 11-30 00:06:54 [default_loader.py:501] Loading weights took 12.02 seconds
(Worker pid=27611) INFO 11-30 00:06:55 [default_loader.py:501] Loading weights took 13.50 seconds
(Worker pid=27610) INFO [gpu_model_runner.py:5150] Model loading took 14.99 GiB memory and 15.123456 seconds
(EngineCore pid=27316) INFO [monitor.py:52] torch.compile took 31.07 s in total
(Worker pid=27610) INFO [gpu_model_runner.py:6582] Graph capturing finished in 21 secs, took 0.62 GiB
(EngineCore pid=27316) INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 80.78 s \
(compilation: 31.07 s)
"""
THEN = """\
INFO 01-01 00:00:01 [loader.py:447] Loading weights took 2.31 seconds
INFO 01-01 00:00:02 [gpu_model_runner.py:1329] Model loading took 14.9596 GiB and 2.890000 seconds
INFO 01-01 00:00:03 [monitor.py:33] torch.compile takes 24.18 s in total
INFO 01-01 00:00:04 [gpu_model_runner.py:1625] Graph capturing finished in 20 secs, took 0.50 GiB
INFO 01-01 00:00:05 [core.py:140] init engine (profile, create kv cache, warmup model) took 48.80 seconds
"""
NOW_MS = {
    "load_weights": 13_500,
    "load_model": 15_123,
    "torch_compile": 31_070,
    "capture_graphs": 21_000,
    "init_engine": 80_780,
}
THEN_MS = {
    "load_weights": 2310,
    "load_model": 2890,
    "torch_compile": 24_180,
    "capture_graphs": 20_000,
    "init_engine": 48_800,
}


@pytest.mark.parametrize(("lines", "expected"), [(NOW, NOW_MS), (THEN, THEN_MS)])
def test_vllm_writes_how_long_each_phase_took_and_the_slowest_worker_counts(lines, expected):
    assert of_log((BEGINNING + lines).encode()) == expected


def test_the_last_start_in_a_log_counts():
    assert of_log((BEGINNING + THEN + BEGINNING + NOW).encode()) == NOW_MS
    assert of_log((BEGINNING + THEN + BEGINNING).encode()) == {}


def test_of_a_log_as_long_as_any_its_end_is_read(tmp_path):
    log = tmp_path / "vllm.log"
    with log.open("wb") as file:
        file.write((BEGINNING + THEN).encode())
        file.truncate(10**9)
    assert read_log(log)[:2] == ({}, {})
    with log.open("ab") as file:
        file.write((BEGINNING + NOW).encode())
    assert read_log(log).phases_ms == NOW_MS


@given(st.binary(max_size=500))
def test_whatever_a_log_holds_it_gives_times_or_none(noise):
    assert all(took_ms >= 0 for took_ms in of_log(BEGINNING.encode() + noise + NOW.encode()).values())


@pytest.mark.parametrize(
    ("lines", "versions"),
    [
        (b"INFO Initializing a V1 LLM engine (v0.11.2) with config: model='x'\n", {"vllm": "0.11.2"}),
        (b"INFO Initializing an LLM engine (v0.6.3.post1) with config\n", {"vllm": "0.6.3.post1"}),
        (b"INFO vLLM API server version 0.11.2.dev3+g1a2b3c\n", {"vllm": "0.11.2.dev3+g1a2b3c"}),
        (
            b"NVIDIA Release 25.08 (build 1)\nNVIDIA Release 25.09 (build 2)\nTriton Server Version 2.61.0\n",
            {"triton_release": "25.09"},
        ),
        (b"INFO Initializing a V1 LLM engine (main) with config\nNVIDIA Release soon\n", {}),
    ],
)
def test_servers_write_their_versions_at_their_start_and_the_last_holds(tmp_path, lines, versions):
    (tmp_path / "log").write_bytes(lines)
    assert read_log(tmp_path / "log").versions == versions


def test_a_time_that_cannot_be_one_is_none():
    assert of_log(b"Loading weights took 99999999999 seconds\n") == {}


def test_sglang_says_its_phases_on_its_page():
    lines = scanned(page_of("sglang"), "sglang", own=tuple(SGLANG_METRICS)).own_lines
    assert of_sglang(lines) == {
        "load_weight": 10_500,
        "kv_cache_allocation": 3_000,
        "capture_graphs_decode": 5_250,
    }


def test_sglang_before_2026_says_two_times_and_of_its_ranks_the_slowest_counts():
    page = b"".join(
        b'sglang:engine_startup_time{tp_rank="%d"} %d.5\nsglang:engine_load_weights_time{tp_rank="%d"} %d\n'
        % (rank, 60 + rank, rank, 20 + rank)
        for rank in range(2)
    )
    lines = scanned(page, "sglang", own=tuple(SGLANG_METRICS)).own_lines
    assert of_sglang(lines) == {"load_weights": 21_000, "total": 61_500}


def test_a_phase_without_a_name_that_can_be_a_label_is_none():
    page = b'sglang:startup_time_seconds{phase="load weight!"} 3\nsglang:startup_time_seconds 3\n'
    assert of_sglang(scanned(page, "sglang", own=tuple(SGLANG_METRICS)).own_lines) == {}


def test_phases_without_end_are_bounded():
    page = b"".join(b'sglang:startup_time_seconds{phase="p%d"} 3\n' % place for place in range(100))
    assert len(of_sglang(scanned(page, "sglang", own=tuple(SGLANG_METRICS)).own_lines)) == 32
