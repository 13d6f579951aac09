"""Row 1: a full KV cache with requests that wait in the engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding
from controlplane.diagnosis.detectors.kv_exhausted import KvExhausted
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram
from wire.write_body import Series

ENGINE: dict[str, Any] = {"engine": "e1", "pool": "chat"}
DETECTOR = KvExhausted()


def series(use: float = 0.98, waiting: float = 6, running: float = 20, reserved: float = 0, **more: float) -> list[Any]:
    return [
        gauge("headworks_engine_kv_cache_usage_ratio", use, **ENGINE),
        gauge("headworks_engine_requests_waiting", waiting, **ENGINE),
        gauge("headworks_engine_requests_running", running, **ENGINE),
        gauge("headworks_gateway_kv_reserved_tokens", reserved, gateway="g1", **ENGINE),
        gauge("headworks_gateway_kv_others_tokens", more.get("others", 0), gateway="g1", **ENGINE),
        counter("headworks_engine_preemptions_total", more.get("preempted", 0.0), **ENGINE),
        counter("headworks_engine_requests_finished_total", 5.0, reason="stop", **ENGINE),
        *histogram("headworks_engine_queue_seconds", {2.0: 5.0}, **ENGINE),
    ]


def found(**given: float) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), helpers.fleet([helpers.pool(lengths=helpers.lengths())]))


def test_a_full_cache_with_requests_that_wait_for_it_is_found():
    (finding,) = found()
    assert finding.subject == "pool/chat"
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert (evidence["kv_use"].value, evidence["kv_use"].limit) == (0.98, 0.95)
    assert evidence["waiting_in_engines"].value == 6
    assert evidence["engine_wait"].value == pytest.approx(2.0)
    assert evidence["kv_capacity"].value == 100_000
    assert evidence["kv_use"].expr == DETECTOR.queries["kv_use"]


@pytest.mark.parametrize(
    "given",
    [
        {"use": 0.94},
        {"waiting": 0},
        # It thrashes: row 2.
        {"preempted": 3.0},
    ],
)
def test_what_is_not_full_or_waits_for_nothing_or_thrashes_is_not(given: dict[str, Any]):
    assert not found(**given)


def test_a_queue_at_the_gateway_waits_for_it_as_well_where_more_is_admitted_than_fits():
    queue = gauge("headworks_gateway_queue_length", 8, pool="chat", gateway="g1")
    (finding,) = helpers.judged(DETECTOR, [*series(use=0.97, waiting=0), queue], helpers.fleet())
    assert {part.name: part.value for part in finding.evidence}["queue"] == 8
    # As full as it may be, and no fuller.
    assert not helpers.judged(DETECTOR, [*series(use=0.9, waiting=0), queue], helpers.fleet())


def test_a_cache_that_puts_some_back_is_full_all_the_same():
    assert found(preempted=1.5)


def test_a_cache_is_full_where_no_usual_prompt_finds_room():
    """Prompts of 10,000 tokens in a cache of 100,000."""
    labels: dict[str, Any] = {"pool": "chat", "tenant": "acme"}
    long = [
        counter("headworks_gateway_prompt_tokens_total", 10_000.0, **labels),
        counter("headworks_gateway_requests_total", 1.0, outcome="ok", reason="none", **labels),
    ]
    (finding,) = helpers.judged(DETECTOR, [*series(use=0.92), *long], helpers.fleet())
    assert finding.evidence[0].limit == pytest.approx(0.9)
    assert not helpers.judged(DETECTOR, [*series(use=0.89), *long], helpers.fleet())


def test_a_cache_that_was_full_for_a_moment_is_none():
    times = range(helpers.AT_MS - 600_000, helpers.AT_MS + 1, 5000)
    peak = [(at, 0.99 if at > helpers.AT_MS - 40_000 else 0.6) for at in times]
    cache = Series({"__name__": "headworks_engine_kv_cache_usage_ratio", **ENGINE}, peak)
    assert not helpers.judged(DETECTOR, [cache, *series()[1:]], helpers.fleet())


def test_the_cap_is_what_runs_in_nine_tenths_or_what_the_lengths_say():
    (finding,) = found(running=20, use=0.98)
    (lever,) = [each for each in finding.levers if each.key == "concurrency"]
    # 20 × 0.9 ÷ 0.98; the lengths alone would let more.
    assert [edit.changes for edit in lever.edits] == [{"max_concurrency": 18}]
    (finding,) = found(running=200)
    (lever,) = [each for each in finding.levers if each.key == "concurrency"]
    (edit,) = lever.edits
    fits = {part.name: part.value for part in finding.evidence}["sequences_that_fit"]
    assert edit.changes == {"max_concurrency": fits}
    # Of contexts of 1,000 tokens on average at most 90 fit 90,000, and fewer for their spread.
    assert 40 < fits < 90


def test_where_reservations_fill_the_cache_fewer_are_admitted():
    (finding,) = found(reserved=95_000, running=18, waiting=6, use=0.98)
    lever = finding.levers[0]
    # 18 of 24 run, in 98 % where 90 % shall be: 900 × 0.75 × 0.9 ÷ 0.98.
    assert (lever.key, lever.edits[0].changes) == ("kv_admit", {"kv_admit_permille": 619})


def test_a_cache_that_no_gateway_fills_is_for_its_clients_to_mend():
    (finding,) = found(others=80_000)
    assert "around_the_gateway" in [lever.key for lever in finding.levers]


@pytest.mark.parametrize(("gpu", "offered"), [("NVIDIA H100 80GB HBM3", True), ("NVIDIA A100-SXM4-80GB", False)])
def test_fp8_is_offered_where_gpus_compute_in_it(gpu: str, offered: bool):
    fleet = helpers.fleet(gpus=[helpers.gpu(model=gpu)])
    (finding,) = helpers.judged(DETECTOR, series(), fleet)
    levers = {lever.key: lever for lever in finding.levers}
    assert ("fp8_kv" in levers) == offered
    if offered:
        assert levers["fp8_kv"].edits[0].changes == {"engine_arguments": {"kv-cache-dtype": "fp8"}}


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found(reserved=95_000, others=80_000)
    assert len(finding.levers) == 4
    kit.dry_run(finding)


numbers = st.floats(0, 1000, allow_nan=False)


def judged(of: Any, use: float, waiting: float, running: float = 10, reserved: float = 0) -> list[Finding]:
    answers = helpers.readings(
        DETECTOR,
        kv_use=[(ENGINE, use)],
        waiting=[(ENGINE, waiting)],
        running=[({"pool": "chat"}, running)],
        reserved=[({"pool": "chat"}, reserved)],
    )
    return list(DETECTOR.judge(answers, of))


@given(use=st.floats(0, 1), waiting=numbers, more_use=st.floats(0, 1), more_waiting=numbers)
def test_worse_numbers_never_clear_it(use: float, waiting: float, more_use: float, more_waiting: float):
    fleet = helpers.fleet()
    worse = judged(fleet, max(use, more_use), waiting + more_waiting)
    assert len(worse) >= len(judged(fleet, use, waiting))


@kit.few
@given(of=kit.fleets(), use=st.floats(0.951, 1), waiting=st.floats(1, 1e6), running=st.floats(0, 1e6), reserved=numbers)
def test_its_edits_hold_in_any_fleet(of: Any, use: float, waiting: float, running: float, reserved: float):
    found = judged(of, use, waiting, running, reserved * 1000)
    assert found
    kit.check(found, of)
