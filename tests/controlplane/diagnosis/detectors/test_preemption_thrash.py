"""Row 2: requests put back for lack of KV cache, again and again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet, Lengths
from controlplane.diagnosis.detectors.preemption_thrash import PreemptionThrash
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram
from wire.write_body import Series

ENGINE: dict[str, Any] = {"engine": "e1", "pool": "chat"}
DETECTOR = PreemptionThrash()


def series(preempted: float = 2.0, finished: float = 5.0, tpot: float = 0.2) -> list[Any]:
    return [
        counter("headworks_engine_preemptions_total", preempted, **ENGINE),
        counter("headworks_engine_requests_finished_total", finished, reason="stop", **ENGINE),
        gauge("headworks_engine_kv_cache_usage_ratio", 0.99, **ENGINE),
        gauge("headworks_engine_requests_running", 150, **ENGINE),
        *histogram("headworks_gateway_tpot_seconds", {tpot: 5.0}, pool="chat", tenant="acme", gateway="g1"),
    ]


def fleet(**engine: Any) -> Fleet:
    arguments = {"max_num_seqs": "256", "max_num_batched_tokens": "8192"}
    return helpers.fleet(
        [helpers.pool(lengths=helpers.lengths())], engines=[helpers.engine(arguments=arguments, **engine)]
    )


def found(of: Fleet | None = None, **given: float) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), of or fleet())


def test_a_counter_that_rises_all_the_time_is_found():
    (finding,) = found()
    assert finding.subject == "pool/chat"
    assert finding.confidence_permille >= 850
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert evidence["preemptions"].value == pytest.approx(2.0)
    assert evidence["preemptions_a_request"].value == pytest.approx(0.4)
    assert evidence["looks_with_preemptions"].value == 1.0
    assert evidence["tpot_p95"].limit == 0.05


def test_it_is_less_sure_where_streams_are_as_fast_as_promised():
    (steady,), (slow,) = found(tpot=0.02), found(tpot=0.2)
    assert steady.confidence_permille < slow.confidence_permille


def test_a_single_burst_is_none():
    """Seed 1, section 2: one burst moves the counter once, too."""
    times = range(helpers.AT_MS - 600_000, helpers.AT_MS + 1, 5000)
    burst = [(at, 500.0 if at > helpers.AT_MS - 60_000 else 0.0) for at in times]
    labels: dict[str, Any] = {"__name__": "headworks_engine_preemptions_total", **ENGINE}
    assert not helpers.judged(DETECTOR, [Series(labels, burst), *series()[1:]], fleet())


def test_one_preemption_for_many_requests_is_none():
    assert not found(preempted=0.4, finished=5.0)


def test_beside_a_queue_in_the_engine_few_are_a_full_cache():
    queue = gauge("headworks_engine_requests_waiting", 6, **ENGINE)
    assert not helpers.judged(DETECTOR, [*series(preempted=2.0), queue], fleet())
    assert helpers.judged(DETECTOR, [*series(preempted=3.0), queue], fleet())


def test_an_engine_that_finishes_nothing_meanwhile_thrashes():
    (finding,) = found(preempted=0.4, finished=0.0)
    assert "preemptions_a_request" not in {part.name for part in finding.evidence}


def test_the_door_is_closed_first_and_engines_are_started_with_what_fits():
    (finding,) = found(preempted=1.0)
    cap, restart = finding.levers
    fits = {part.name: part.value for part in finding.evidence}["sequences_that_fit"]
    assert (cap.key, cap.edits[0].changes) == ("concurrency", {"max_concurrency": fits})
    assert (restart.key, restart.edits[0].changes) == ("max_num_seqs", {"engine_arguments": {"max-num-seqs": fits}})
    # Contexts of 1,000 tokens on average in nine tenths of 100,000: fewer than 90, for their spread.
    assert 40 < fits < 90


def test_as_many_run_as_end_whatever_the_engine_says_that_it_holds():
    """It tells of four times the KV cache that it has: 150 run at 99 % of it."""
    more = 4 * 100_000
    told = helpers.fleet(
        [helpers.pool(kv_capacity_tokens=more, lengths=helpers.lengths())],
        engines=[helpers.engine(kv_capacity_tokens=more, arguments={"max-num-seqs": "256"})],
    )
    (finding,) = found(told)
    # 151.5 fill it: n + 1.645 · √(n/3) ≤ 136.4.
    assert [lever.edits[0].changes for lever in finding.levers] == [
        {"max_concurrency": 125},
        {"engine_arguments": {"max-num-seqs": 125}},
    ]
    assert "125 stay within nine tenths" in str(finding.levers[0].why)


def test_of_several_engines_each_has_room_for_its_own_spread():
    two = helpers.fleet([helpers.pool(engines=("e1", "e2"))], engines=[helpers.engine(), helpers.engine(name="e2")])
    (alone,), (shared,) = found(helpers.fleet([helpers.pool()], engines=[helpers.engine()])), found(two)
    # Twice n + 1.645 · √(n/3) ≤ 68.2.
    assert alone.levers[0].edits[0].changes == {"max_concurrency": 125}
    assert shared.levers[0].edits[0].changes == {"max_concurrency": 120}


def test_the_seeds_own_budget_carries_tens_of_sequences_and_not_128():
    """Seed 1, "KV budget": 200,000 tokens, contexts of 4,000 on average: max_num_seqs 128 is 2.5 times too many."""
    lengths = Lengths(5000, {500: 3500, 950: 3501}, {500: 512, 950: 513}, {500: 500, 950: 501})
    of = helpers.fleet(
        [helpers.pool(kv_capacity_tokens=200_000, lengths=lengths)],
        engines=[helpers.engine(kv_capacity_tokens=200_000, arguments={"max-num-seqs": "128"})],
    )
    (finding,) = found(of)
    (edit,) = finding.levers[1].edits
    # Nine tenths of 50, less what lengths differ by and a bucket of them is wide.
    assert 38 <= edit.changes["engine_arguments"]["max-num-seqs"] <= 45


def test_steps_have_a_token_for_each_sequence():
    of = helpers.fleet(
        [helpers.pool(lengths=helpers.lengths())],
        engines=[helpers.engine(arguments={"max_num_seqs": "256", "max_num_batched_tokens": "32"})],
    )
    (finding,) = found(of)
    arguments = finding.levers[1].edits[0].changes["engine_arguments"]
    assert arguments["max-num-batched-tokens"] == arguments["max-num-seqs"]


@pytest.mark.parametrize("engine", [{"kind": "tgi"}, {"arguments": {"max_num_seqs": "8"}}])
def test_what_is_started_so_or_takes_other_arguments_is_not_restarted(engine: dict[str, Any]):
    of = helpers.fleet([helpers.pool(lengths=helpers.lengths())], engines=[helpers.engine(**engine)])
    (finding,) = found(of)
    assert [lever.key for lever in finding.levers] == ["concurrency"]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found()
    kit.dry_run(finding)


def judged(of: Fleet, rate: float, looks: float, finished: float, running: float = 30) -> list[Finding]:
    here = {"pool": "chat"}
    answers = helpers.readings(
        DETECTOR,
        preempted=[(here, rate)],
        preempted_looks=[(here, looks)],
        finished=[(here, finished)],
        running=[(here, running)],
    )
    return list(DETECTOR.judge(answers, of))


share = st.floats(0, 1)
numbers = st.floats(0, 1000)


@given(rate=numbers, looks=share, finished=numbers, more=numbers, more_looks=share)
def test_worse_numbers_never_clear_it(rate: float, looks: float, finished: float, more: float, more_looks: float):
    of = helpers.fleet()
    worse = judged(of, rate + more, max(looks, more_looks), finished)
    assert len(worse) >= len(judged(of, rate, looks, finished))


@kit.few
@given(of=kit.fleets(), rate=st.floats(1, 1e6), running=st.floats(0, 1e6))
def test_its_edits_hold_in_any_fleet(of: Fleet, rate: float, running: float):
    found = judged(of, rate, 1.0, 1.0, running)
    assert found
    kit.check(found, of)
