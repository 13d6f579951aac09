"""What-if runs: the same for the same seed, nothing lost, refused by name; and the speed that is fitted."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fit import fit, simulate
from simulator.what_if import BAD_ASK, OVER_TIME
from simulator.what_if_run import Outcome, Run
from simulator.what_if_sweep import RunDied, _received, processes_for, sweep
from wire import calibration as measured
from wire.sketches import bucket_of
from wire.what_if import Ask, BadAsk, Gateway, Point, Slo, Speed, points, read, read_json

BASE: dict[str, Any] = {
    "prompt_tokens": [[bucket_of(100), 4], [bucket_of(700), 1]],
    "output_tokens": [[bucket_of(20), 4], [bucket_of(90), 1]],
    "arrivals": {"rate_per_second": 6.0},
    "slo": {"ttft_ms": 500, "tpot_ms": 40},
    "max_num_seqs": [32],
    "max_num_batched_tokens": [1024],
    "max_model_len_tokens": 2048,
    "kv_capacity_tokens": [20_000],
    "warm_up_seconds": 0,
    "measured_seconds": 20,
    "seeds": 2,
    "processes": 1,
}


MANY = {"loads": [1.0 - share / 100 for share in range(16)], "max_num_seqs": list(range(32, 64)), "seeds": 16}


def asked(**changed: Any) -> Ask:
    return read({**BASE, **changed})


def run(seed: int = 0, load: float = 1.0, **changed: Any) -> Outcome:
    ask = asked(**changed)
    return Run(ask, points(ask)[0], load, seed).outcome()


def test_the_same_seed_gives_the_same_and_another_seed_another() -> None:
    assert run() == run()
    assert run(seed=1) != run()


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(0.5, 60),
    seqs=st.integers(1, 64),
    kv=st.integers(2048, 30_000),
    concurrency=st.one_of(st.none(), st.integers(1, 40)),
    queue_cap=st.integers(0, 20),
    replicas=st.integers(1, 3),
    seed=st.integers(0, 5),
)
def test_every_request_is_good_or_missed_something_once(
    rate: float, seqs: int, kv: int, concurrency: int | None, queue_cap: int, replicas: int, seed: int
) -> None:
    gateway = None if concurrency is None else {"max_concurrency": [concurrency], "queue_cap": queue_cap}
    outcome = run(
        seed, arrivals={"rate_per_second": rate}, max_num_seqs=[seqs], kv_capacity_tokens=[kv], gateway=gateway,
        replicas=[replicas], measured_seconds=5,
    )  # fmt: skip
    assert outcome.arrived == outcome.good + sum(msgspec.to_builtins(outcome.missed).values())
    assert 0 <= outcome.kv_use_mean <= outcome.kv_use_peak <= 1
    assert outcome.running_mean <= seqs


def test_more_than_the_engine_takes_waits_and_misses_its_ttft() -> None:
    starved, ample = run(max_num_seqs=[1], load=4), run(max_num_seqs=[64], load=4)
    assert starved.good < ample.good
    assert starved.missed.ttft > ample.missed.ttft
    assert starved.wait["p95"] > ample.wait["p95"]


def test_little_kv_cache_preempts() -> None:
    assert run(load=10, kv_capacity_tokens=[2048], max_num_seqs=[64]).preemptions > 0
    assert run(load=1, kv_capacity_tokens=[200_000]).preemptions == 0


def test_the_gateways_places_bound_what_runs_and_its_queue_refuses_the_rest() -> None:
    gateway = {"max_concurrency": [2], "queue_cap": 1, "queue_ttl_ms": 200}
    held = run(load=8, gateway=gateway)
    assert held.running_mean <= 2
    assert held.missed.refused > 0
    assert run(load=8).missed.refused == 0


def test_replicas_share_the_load() -> None:
    one, two = run(load=8), run(load=8, replicas=[2])
    assert two.running_mean < one.running_mean
    assert two.good >= one.good


def test_a_prompt_that_is_too_long_is_counted_as_such() -> None:
    outcome = run(prompt_tokens=[[bucket_of(3000), 1]])
    assert (outcome.missed.too_long, outcome.good) == (outcome.arrived, 0)


def test_measured_minutes_scale_the_rate_and_quiet_ones_stay_quiet() -> None:
    minutes: dict[str, Any] = {"arrivals": {"minutes": [0, 0, 720]}, "measured_seconds": 600}
    bursty = [run(seed, **minutes).arrived for seed in range(4)]
    assert sum(bursty) / 4 == pytest.approx(4 * 600, rel=0.6)
    assert max(bursty) - min(bursty) > 200
    assert run(arrivals={"minutes": [240], "rate_per_second": 2.0}, measured_seconds=600).arrived == pytest.approx(
        1200, rel=0.15
    )


def test_a_sweep_says_what_cannot_start_and_where_the_peak_is() -> None:
    told: list[tuple[int, int]] = []
    ask = asked(max_num_seqs=[1, 64], max_num_batched_tokens=[32, 2048], loads=[1.0, 6.0], measured_seconds=10)
    report = sweep(ask, lambda done, of: told.append((done, of)))
    assert told[-1] == (12, 12)
    cannot = [point["settings"] for point in report["points"] if point["cannot"]]
    assert [(each["max_num_seqs"], each["max_num_batched_tokens"]) for each in cannot] == [(64, 32)]
    peak = report["peak"]
    assert (peak["settings"]["max_num_seqs"], peak["settings"]["max_num_batched_tokens"]) == (64, 2048)
    spread = report["points"][-1]["loads"][0]["goodput"]
    assert spread["min"] <= spread["mean"] <= spread["max"]
    assert {why["setting"]: why["cause"] for why in peak["why"]}["max_num_seqs"] == "ttft"


def test_processes_are_bounded_by_cores_and_runs() -> None:
    assert processes_for(asked(processes=64), 1) == 1
    assert processes_for(asked(processes=64), 1000) <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"slo": {}}, "/slo"),
        ({"slo": {"ttft": 1}}, "/slo/ttft"),
        ({"arrivals": {}}, "/arrivals"),
        ({"arrivals": {"rate_per_second": 1.0, "minutes": [0]}}, "/arrivals/minutes"),
        ({"max_num_seqs": []}, "/max_num_seqs"),
        ({"max_num_seqs": [0]}, "/max_num_seqs/0"),
        ({"prompt_tokens": []}, "/prompt_tokens"),
        ({"output_tokens": [[3, 1], [3, 1]]}, "/output_tokens"),
        ({"loads": [100.0], "arrivals": {"rate_per_second": 5000.0}}, "/loads"),
        ({"max_num_seqs": list(range(1, 33)), "max_num_batched_tokens": list(range(64, 96))}, "/"),
        ({"measured_seconds": 86_400, "arrivals": {"rate_per_second": 20.0}, "output_tokens": [[200, 1]]}, "/"),
        ({"measured_seconds": 86_400, "arrivals": {"rate_per_second": 30.0}}, "/measured_seconds"),
        ({**MANY, "output_tokens": [[0, 1]], "arrivals": {"rate_per_second": 9000.0}}, "/"),
        ({"arrivals": {"rate_per_second": 1e-300}}, "/arrivals/rate_per_second"),
        ({"speed": {"base_seconds": -1}}, "/speed/base_seconds"),
        ({"loads": [float("nan")]}, "/loads/0"),
        ({"arrivals": {"rate_per_second": float("inf")}}, "/arrivals/rate_per_second"),
        ({"\ud800": 1}, "/"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_its_path(changed: dict[str, Any], path: str) -> None:
    with pytest.raises(BadAsk) as refused:
        asked(**changed)
    assert path in [problem.path for problem in refused.value.problems]


def test_millions_of_combinations_are_counted_and_not_made() -> None:
    many = {"max_num_seqs": list(range(1, 33)), "max_num_batched_tokens": list(range(1, 33))}
    many |= {"replicas": list(range(1, 17)), "kv_capacity_tokens": list(range(100, 116))}
    began = time.process_time()
    with pytest.raises(BadAsk, match="4194304 combinations"):
        asked(**many, gateway={"max_concurrency": list(range(1, 17))})
    assert time.process_time() - began < 0.2


def test_a_process_of_the_runs_that_is_killed_is_told_at_once() -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=os._exit, args=(9,))
    process.start()
    sender.close()
    with pytest.raises(RunDied, match="status 9; is there enough memory"):
        _received(receiver, {receiver: process})


def test_a_run_gets_no_more_memory_than_is_meant_for_it() -> None:
    greedy = "from simulator.what_if import MEMORY_MAX_BYTES, bound_memory; bound_memory(); bytearray(MEMORY_MAX_BYTES)"
    done = subprocess.run([sys.executable, "-c", greedy], capture_output=True, check=False)
    assert done.stderr.strip().endswith(b"MemoryError")


def test_no_json_is_refused_as_such() -> None:
    for text in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(BadAsk):
            read_json(text)
        with pytest.raises(BadAsk):
            measured.read_json(text)


def child(module: str = "what_if") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"simulator.{module}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_program_reads_json_and_prints_json_and_its_progress() -> None:
    output, progress = child().communicate(json.dumps({**BASE, "measured_seconds": 3}).encode())
    assert json.loads(output)["runs"] == 2
    assert json.loads(progress.splitlines()[-1]) == {"done": 2, "of": 2}


def test_the_program_refuses_by_name_and_ends_in_time() -> None:
    bad = child()
    output, _ = bad.communicate(json.dumps({**BASE, "slo": {}}).encode())
    assert (bad.returncode, json.loads(output)["problems"][0]["path"]) == (BAD_ASK, "/slo")
    slow = child()
    long = {**BASE, "measured_seconds": 30_000, "arrivals": {"rate_per_second": 60.0}, "limit_seconds": 1}
    output, _ = slow.communicate(json.dumps(long).encode(), timeout=60)
    assert (slow.returncode, "within 1 s" in json.loads(output)["error"]) == (OVER_TIME, True)


def test_it_ends_when_nobody_hears_it_any_more() -> None:
    long = {**BASE, "measured_seconds": 30_000, "arrivals": {"rate_per_second": 60.0}}
    orphan = child()
    assert orphan.stdin is not None
    assert orphan.stderr is not None
    orphan.stdin.write(json.dumps(long).encode())
    orphan.stdin.close()
    assert json.loads(orphan.stderr.readline()) == {"done": 0, "of": 2}
    orphan.stderr.close()
    try:
        assert orphan.wait(20) != 0
    finally:
        if orphan.poll() is None:
            os.kill(orphan.pid, signal.SIGKILL)


def observation(speed: Speed, rate: float, prompt: int, **changed: Any) -> dict[str, Any]:
    """What an engine of this speed would have been measured to have."""
    document = {
        "prompt_tokens": [[bucket_of(prompt), 1]], "output_tokens": [[bucket_of(40), 1]],
        "arrivals": {"rate_per_second": rate}, "max_num_seqs": 16, "max_num_batched_tokens": 512,
        "kv_capacity_tokens": 50_000, "max_model_len_tokens": 4096, "ttft_ms": {"p50": 1.0}, "tpot_ms": {},
        "measured_seconds": 10, **changed,
    }  # fmt: skip
    told = simulate(speed, msgspec.convert(document, measured.Observation), 1)
    return {**document, "ttft_ms": told["ttft"], "tpot_ms": told["tpot"]}


def test_the_speed_of_a_known_engine_is_found_and_says_what_it_has_not_seen() -> None:
    speed = Speed(0.02, 3e-4, 2e-3, 0.0, 0.01)
    seen = [observation(speed, rate, prompt) for rate, prompt in ((0.5, 60), (0.5, 1500), (4.0, 200))]
    held = observation(speed, 3.0, 600, held_out=True)
    document = {"observations": [*seen, held], "seeds": 1, "tries_max": 300}
    began = time.monotonic()
    found = fit(measured.read_json(json.dumps(document).encode()), lambda tried, error: None)
    assert time.monotonic() - began < 60
    medians = [each for each in found["errors"] if each["statistic"] == "p50"]
    assert max(abs(each["error"]) for each in medians if not each["held_out"]) < 0.1
    assert max(abs(each["error"]) for each in medians if each["held_out"]) < 0.2


def test_a_calibration_without_anything_to_fit_is_refused() -> None:
    one = observation(Speed(), 1.0, 100)
    cases = {
        "/observations": {"observations": [{**one, "held_out": True}]},
        "/observations/0/ttft_ms": {"observations": [{**one, "ttft_ms": {}, "tpot_ms": {}}]},
        "/observations/0/max_num_batched_tokens": {"observations": [{**one, "max_num_batched_tokens": 8}]},
        "/observations/0/kv_capacity_tokens": {"observations": [{**one, "kv_capacity_tokens": 100}]},
        "/fit_to": {"observations": [{**one, "ttft_ms": {"p50": 1.0}, "tpot_ms": {}}], "fit_to": ["p95"]},
    }
    for path, document in cases.items():
        with pytest.raises(BadAsk) as refused:
            measured.read_json(json.dumps(document).encode())
        assert path in [problem.path for problem in refused.value.problems]


def test_what_a_point_has_is_what_the_ask_says() -> None:
    ask = asked(gateway={"max_concurrency": [4]}, replicas=[2])
    assert points(ask) == [Point(32, 1024, 2, 20_000, 4)]
    assert (ask.gateway, ask.slo) == (Gateway([4]), Slo(500, 40))
