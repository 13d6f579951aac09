"""The peak of a sweep, and why it falls on either side of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.what_if import LEVEL_SHARE, best_load, goodput_of, peak_of, words


def load(goodput: float, tpot_ms: float = 20.0, times: float = 1.0, **missed: float) -> dict[str, Any]:
    latency = {"p50": tpot_ms, "p95": tpot_ms, "p99": tpot_ms}
    return {
        "load": times, "goodput": {"mean": goodput}, "good_share": goodput / 10 / times,
        "missed": {"ttft": 0.0, "tpot": 0.0, "refused": 0.0, **missed},
        "ttft_ms": latency, "tpot_ms": latency, "e2e_ms": latency, "preemptions_per_minute": 0.0,
    }  # fmt: skip


def point(seqs: int, *loads: dict[str, Any], batched: int = 512, replicas: int = 1) -> dict[str, Any]:
    settings = {
        "max_num_seqs": seqs, "max_num_batched_tokens": batched, "replicas": replicas,
        "kv_capacity_tokens": 1000, "max_concurrency": None,
    }  # fmt: skip
    return {"settings": settings, "cannot": None, "loads": list(loads)}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_the_peak_is_as_good_as_the_best(goodputs: list[float]) -> None:
    points = [point(index, load(goodput)) for index, goodput in enumerate(goodputs)]
    peak = peak_of(points)
    if max(goodputs) == 0:
        assert peak is None
    else:
        assert peak is not None
        assert peak["goodput_per_second"] >= max(goodputs) * (1 - LEVEL_SHARE)


def test_of_those_as_good_it_is_the_one_that_costs_least_and_is_fastest() -> None:
    points = [point(8, load(9.99, 30.0)), point(16, load(10.0, 20.0), replicas=2), point(4, load(9.98, 25.0))]
    peak = peak_of(points)
    assert peak is not None
    assert (peak["settings"]["max_num_seqs"], peak["as_good"]) == (4, 3)


def test_goodput_is_that_of_the_load_that_brings_most() -> None:
    loads = [load(10.0), load(18.0, times=2.0), load(6.0, times=3.0)]
    assert goodput_of(point(1, *loads)) == 18.0
    peak = peak_of([point(1, *loads)])
    assert peak is not None
    assert (peak["load"], peak["load_is_met"]) == (2.0, False)
    met = peak_of([point(1, load(10.0))])
    assert met is not None
    assert met["load_is_met"]
    assert best_load(point(1)) is None


def test_it_says_why_on_either_side() -> None:
    thrashing = {**load(5.0, 80.0, tpot=0.5), "preemptions_per_minute": 300.0}
    refused = {**point(64), "cannot": "too few tokens"}
    points = [point(8, load(7.0, ttft=0.3)), point(16, load(10.0)), point(32, thrashing)]
    points += [point(16, load(9.95), batched=1024), {**refused, "settings": point(16, batched=256)["settings"]}]
    peak = peak_of(points)
    assert peak is not None
    lines = [words(why) for why in peak["why"]]
    assert lines == [
        "max_num_seqs 16 → 8: goodput -30.0%: more first tokens come too late (0.0% → 30.0%; p95 20 → 20 ms)",
        "max_num_seqs 16 → 32: goodput -50.0%: more answers come too slowly (0.0% → 50.0%; p95 20 → 80 ms; "
        "300 preemptions a minute)",
        "max_num_batched_tokens 512 → 256: the engine does not start (too few tokens)",
        "max_num_batched_tokens 512 → 1,024: goodput -0.5%",
    ]


@pytest.mark.parametrize("points", [[], [point(1)], [point(1, load(0.0))]])
def test_where_nothing_is_good_there_is_no_peak(points: list[dict[str, Any]]) -> None:
    assert peak_of(points) is None
