"""The traffic generator: what it draws, what it refuses, and a run against a real engine."""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.lengths import LogNormal, Pareto
from simulator.tokenizer import Words, train_tokenizer
from simulator.traffic import Tenant, draw_request, loopback_url, read_tenants
from simulator.traffic_report import RESERVOIR_SAMPLES, Reservoir, TenantTally
from tests.services import free_port
from tests.simulator.conftest import MODEL, StartEngine

TOKENIZER = train_tokenizer()
WORDS = Words(TOKENIZER)


def tenant(**fields: Any) -> dict[str, Any]:
    return {"key": "hw-not-a-secret", "model": MODEL, "rate_per_second": 20, **fields}


def command(url: str, tenants: dict[str, Any], folder: Path, *options: str) -> list[str]:
    file = folder / "tenants.json"
    file.write_text(json.dumps(tenants))
    return [sys.executable, "-m", "simulator.traffic", "--url", url, "--tenants", str(file), *options]


@given(st.integers(0, 2**32))
def test_the_same_seed_draws_the_same_request(seed: int) -> None:
    plan = Tenant(key="k", model="m", rate_per_second=1)
    one, two = (draw_request(plan, WORDS, random.Random(seed)) for _ in range(2))
    assert one == two


def test_shares_and_lengths_are_those_of_the_tenant() -> None:
    plan = Tenant(
        key="k",
        model="m",
        rate_per_second=1,
        prompt_tokens=Pareto(min_tokens=10, alpha=1.5, max_tokens=50),
        stream_share=0.75,
        chat_share=0.0,
        cancel_share=0.25,
    )
    rng = random.Random(3)
    drawn = [draw_request(plan, WORDS, rng) for _ in range(400)]
    bodies = [json.loads(request.body) for request in drawn]
    assert {request.path for request in drawn} == {"/v1/completions"}
    assert all(10 <= len(TOKENIZER.encode(body["prompt"]).ids) <= 50 for body in bodies)
    assert 260 <= sum(body["stream"] for body in bodies) <= 340
    assert 65 <= sum(request.leave_after_seconds is not None for request in drawn) <= 135
    assert all(("stream_options" in body) == body["stream"] for body in bodies)


@given(st.integers(0, 2**32), st.integers(1, 500), st.floats(0, 5), st.integers(1, 1000))
def test_lengths_stay_between_one_and_their_bound(seed: int, median: int, sigma: float, bound: int) -> None:
    rng = random.Random(seed)
    for lengths in (LogNormal(median, sigma, bound), Pareto(median, 0.1 + sigma, bound)):
        assert 1 <= lengths.draw(rng) <= bound


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://10.0.0.1:8000",
        "https://127.0.0.1:1",
        "http://127.0.0.1.example.com",
        "127.0.0.1:1",
        "",
    ],
)
def test_it_refuses_to_load_another_machine(url: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not on this machine"):
        loopback_url(url)


def test_it_takes_addresses_of_this_machine() -> None:
    assert loopback_url("http://127.0.0.1:8080/") == "http://127.0.0.1:8080"
    assert loopback_url("http://[::1]:8080") == "http://[::1]:8080"
    assert loopback_url("http://localhost:8080") == "http://localhost:8080"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"rate_per_second": 0}, "rate_per_second"),
        ({"stream_share": 1.5}, "stream_share"),
        ({"prompt_tokens": {"kind": "normal"}}, "prompt_tokens"),
        ({"typo": 1}, "typo"),
        ({"key": ""}, "key"),
    ],
)
def test_a_wrong_tenants_file_is_refused_with_its_field(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    (tmp_path / "tenants.json").write_text(json.dumps({"a": tenant(**fields)}))
    with pytest.raises(msgspec.ValidationError, match=named):
        read_tenants(tmp_path / "tenants.json")


def test_quantiles_are_nearest_ranks() -> None:
    reservoir = Reservoir("seed")
    assert reservoir.quantile(0.5) is None
    for value in random.Random(1).sample(range(1, 101), 100):
        reservoir.add(value)
    assert [reservoir.quantile(share) for share in (0.0, 0.01, 0.5, 0.95, 1.0)] == [1, 1, 50, 95, 100]


def test_a_long_run_keeps_a_bounded_and_fair_sample() -> None:
    reservoir = Reservoir("seed")
    for value in range(10 * RESERVOIR_SAMPLES):
        reservoir.add(value)
    assert len(reservoir._values) == RESERVOIR_SAMPLES
    median = reservoir.quantile(0.5)
    assert median is not None
    assert 0.47 < median / (10 * RESERVOIR_SAMPLES) < 0.53


def test_tpot_leaves_out_the_first_token_and_answers_of_one() -> None:
    tally = TenantTally("a")
    tally.streamed(decode_seconds=5.0, completion_tokens=1)
    tally.streamed(decode_seconds=0.9, completion_tokens=10)
    assert tally.report().tpot_p50_ms == pytest.approx(100)


def test_a_run_reports_what_each_tenant_got(start_engine: StartEngine, tmp_path: Path) -> None:
    engine = start_engine("--speed", "20")
    tenants = {
        "served": tenant(output_tokens={"kind": "lognormal", "median_tokens": 10, "max_tokens": 40}, cancel_share=0),
        "refused": tenant(model="no-such-model"),
        "leaving": tenant(
            output_tokens={"kind": "pareto", "min_tokens": 2000},
            prompt_tokens={"kind": "lognormal", "median_tokens": 5, "max_tokens": 50},
            cancel_share=1,
            cancel_within_seconds=0.01,
        ),
    }
    argv = command(engine.url, tenants, tmp_path, "--seconds", "3", "--report", str(tmp_path / "report.json"))
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "hw-not-a-secret" not in ended.stdout + ended.stderr
    report = json.loads((tmp_path / "report.json").read_text())["tenants"]
    for row in report.values():
        assert 0 < row["requests"] <= 120, "20 a second for 3 seconds; a busy machine sends fewer"
        assert sum(row["statuses"].values()) == row["requests"]
    served, refused, leaving = report["served"], report["refused"], report["leaving"]
    assert served["statuses"]["200"] > 0
    assert set(served["statuses"]) <= {"200", "unfinished"}
    assert served["completion_tokens"] >= served["statuses"]["200"]
    assert 0 < served["ttft_p50_ms"] <= served["ttft_p95_ms"]
    assert served["tpot_p50_ms"] > 0
    assert refused["refusal_reasons"] == {"404": refused["statuses"]["404"]}
    assert refused["ttft_p50_ms"] is None
    assert leaving["statuses"]["cancelled"] > 0
    engine.wait_for_sample("vllm:num_requests_running", 0)


def test_sigterm_ends_a_run_without_an_end_and_still_reports(start_engine: StartEngine, tmp_path: Path) -> None:
    engine = start_engine("--speed", "20")
    argv = command(engine.url, {"a": tenant(), "b": tenant()}, tmp_path, "--report", str(tmp_path / "report.json"))
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        first_line = running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.communicate()
    assert first_line.startswith("a: ")
    tenants = json.loads((tmp_path / "report.json").read_text())["tenants"]
    assert tenants["a"]["requests"] > 0


def test_arrivals_over_the_bound_are_dropped_and_counted(start_engine: StartEngine, tmp_path: Path) -> None:
    engine = start_engine()
    engine.set_fault(kind="hang")
    options = ("--seconds", "1", "--max-in-flight", "2", "--report", str(tmp_path / "report.json"))
    subprocess.run(command(engine.url, {"a": tenant(cancel_share=0)}, tmp_path, *options), check=True, timeout=60)
    row = json.loads((tmp_path / "report.json").read_text())["tenants"]["a"]
    assert (row["requests"], Counter(row["statuses"])) == (2, Counter(unfinished=2))
    assert row["dropped"] > 0


def test_timeouts_and_refused_connections_are_told_apart(start_engine: StartEngine, tmp_path: Path) -> None:
    engine = start_engine("--speed", "instant")
    engine.set_fault(kind="hang")
    statuses = {}
    for status, url in (("timeout", engine.url), ("connection_error", f"http://127.0.0.1:{free_port()}")):
        options = ("--seconds", "1.5", "--timeout-seconds", "0.2", "--report", str(tmp_path / "report.json"))
        subprocess.run(command(url, {"a": tenant(cancel_share=0)}, tmp_path, *options), check=True, timeout=60)
        statuses[status] = json.loads((tmp_path / "report.json").read_text())["tenants"]["a"]["statuses"]
    assert statuses["timeout"]["timeout"] > 0
    assert set(statuses["timeout"]) <= {"timeout", "unfinished"}
    assert statuses["connection_error"]["connection_error"] > 0
    assert set(statuses["connection_error"]) <= {"connection_error", "unfinished"}
