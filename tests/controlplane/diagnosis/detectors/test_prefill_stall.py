"""Row 4: long prompts that stop streams, and prompts that a prefix cache cannot help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.prefill_stall import PrefillStall
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, histogram

ENGINE: dict[str, Any] = {"engine": "e1", "pool": "chat"}
DETECTOR = PrefillStall()
# Of 1,000 gaps 30 are as long as a step of 8,192 prompt tokens.
STALLED = {0.01: 970.0, 0.5: 30.0}
STEPS = {32.0: 97.0, 8192.0: 3.0}


def series(gaps: Any = None, steps: Any = None, **more: float) -> list[Any]:
    return [
        *histogram("headworks_engine_inter_token_latency_seconds", gaps or STALLED, **ENGINE),
        *histogram("vllm:iteration_tokens_total", steps or STEPS, **ENGINE),
        *histogram("headworks_gateway_tpot_seconds", {more.get("tpot", 0.1): 5.0}, pool="chat", tenant="acme"),
        counter("headworks_engine_preemptions_total", more.get("preempted", 0.0), **ENGINE),
        counter("headworks_engine_requests_finished_total", 5.0, reason="stop", **ENGINE),
    ]


def prefix(hits: float, hostile: float) -> list[Any]:
    """Of 10 requests and 5,000 prompt tokens a second."""
    return [
        counter("headworks_engine_prefix_cache_queries_tokens_total", 5000.0, **ENGINE),
        counter("headworks_engine_prefix_cache_hits_tokens_total", hits, **ENGINE),
        counter("headworks_gateway_cache_hostile_prompts_total", hostile, pool="chat", tenant="acme"),
        counter("headworks_gateway_requests_total", 10.0, pool="chat", tenant="acme", outcome="ok", reason="none"),
    ]


def fleet(**engine: Any) -> Fleet:
    arguments = {"max_num_seqs": "128", "max_num_batched_tokens": "8192"}
    return helpers.fleet(
        [helpers.pool(lengths=helpers.lengths(prompt_tokens=300, tail=100))],
        engines=[helpers.engine(**{"arguments": arguments, **engine})],
    )


def found(of_series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, of_series, of or fleet())


def test_streams_that_stand_still_while_prompts_are_read_are_found():
    (finding,) = found(series())
    assert finding.subject == "pool/chat"
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert evidence["gap_p99"].value > 0.3
    # Four times the seed's 50 ms, since the pool promises nothing.
    assert evidence["gap_p99"].limit == pytest.approx(0.2)
    assert evidence["gap_p50"].value <= 0.01
    assert evidence["step_tokens_p99"].value > 4000
    assert evidence["prompt_p99"].value == 30_000


@pytest.mark.parametrize(
    ("gaps", "steps"),
    [
        # All gaps are long: a batch that is too large, or a slow GPU.
        ({0.5: 1000.0}, STEPS),
        # Long for a step, but not so that anybody sees it.
        ({0.01: 970.0, 0.1: 30.0}, STEPS),
        # A gap in a thousand.
        ({0.01: 999.5, 0.5: 0.5}, STEPS),
        # Steps that are all alike hold no prompts.
        (STALLED, {32.0: 100.0}),
        # Too few gaps to say.
        ({0.01: 0.5, 0.5: 0.2}, STEPS),
    ],
)
def test_other_slowness_is_none(gaps: dict[float, float], steps: dict[float, float]):
    assert not found(series(gaps, steps))


def test_preemptions_are_another_row():
    assert not found(series(preempted=2.0))


def test_engines_that_do_not_tell_of_their_steps_are_judged_by_their_gaps():
    without = [each for each in series() if not each.labels["__name__"].startswith("vllm:")]
    (finding,) = found(without)
    assert "step_tokens_p99" not in {part.name for part in finding.evidence}


def test_steps_are_as_large_as_is_read_within_a_promised_token():
    (finding,) = found(series())
    lever = finding.levers[0]
    evidence = {part.name: part.value for part in finding.evidence}
    speed = evidence["step_tokens_p99"] / evidence["gap_p99"]
    # In 50 ms, in whole 256.
    wanted = int(speed * 0.05) // 256 * 256
    assert (lever.key, lever.edits[0].changes) == (
        "max_num_batched_tokens", {"engine_arguments": {"max-num-batched-tokens": wanted}},
    )  # fmt: skip
    assert 256 < wanted < 2048


def test_a_step_keeps_a_token_for_each_sequence():
    (finding,) = found(series(), fleet(arguments={"max_num_seqs": "2000", "max_num_batched_tokens": "8192"}))
    assert finding.levers[0].edits[0].changes == {"engine_arguments": {"max-num-batched-tokens": 2000}}


def test_prompts_that_stop_streams_for_as_long_as_is_seen_get_engines_of_their_own():
    (finding,) = found(series(), with_long_pool())
    evidence = {part.name: part.value for part in finding.evidence}
    (edit,) = finding.levers[0].edits
    # Of what is read in four promised gaps of 50 ms.
    wanted = int(evidence["step_tokens_p99"] / evidence["gap_p99"] * 0.2)
    assert (edit.key, edit.changes["match"]["min_prompt_tokens"]) == ("size-chat", wanted)


def test_without_another_pool_smaller_steps_come_first():
    (finding,) = found(series())
    assert [lever.key for lever in finding.levers] == ["max_num_batched_tokens", "size_route"]
    assert finding.levers[1].advice


def test_a_prefix_cache_that_new_heads_defeat_is_found_by_itself():
    (finding,) = found(prefix(hits=250.0, hostile=6.0))
    assert {part.name: round(part.value, 2) for part in finding.evidence} == {"prefix_hits": 0.05, "new_heads": 0.6}
    assert [lever.key for lever in finding.levers] == ["prompt_order"]


@pytest.mark.parametrize(("hits", "hostile"), [(2500.0, 6.0), (250.0, 1.0)])
def test_a_cache_that_helps_or_prompts_that_all_differ_are_none(hits: float, hostile: float):
    assert not found(prefix(hits, hostile))


def test_an_engine_without_a_prefix_cache_misses_none():
    off = [each for each in prefix(0.0, 6.0) if "prefix_cache" not in each.labels["__name__"]]
    assert not found([*off, counter("headworks_engine_prefix_cache_queries_tokens_total", 0.0, **ENGINE)])


def test_both_are_one_finding_of_the_pool():
    (finding,) = found([*series(), *prefix(250.0, 6.0)])
    assert "; " in str(finding.summary)
    assert "prompt_order" in [lever.key for lever in finding.levers]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found(series(), with_long_pool())
    assert [lever.key for lever in finding.levers] == ["size_route", "max_num_batched_tokens"]
    kit.dry_run(finding)


def with_long_pool() -> Fleet:
    short = helpers.pool(lengths=helpers.lengths(prompt_tokens=300, tail=100))
    engines = [helpers.engine(arguments={"max_num_batched_tokens": "8192"}), helpers.engine("e2", pool="long")]
    return helpers.fleet(
        [short, helpers.pool("long", engines=("e2",), work="long")], engines=engines, routes=[helpers.route()]
    )


def judged(of: Fleet, gap: float, usual: float, step: float) -> list[Finding]:
    here = {"pool": "chat"}
    answers = helpers.readings(
        DETECTOR, gap_p99=[(here, gap)], gap_p50=[(here, usual)], gaps=[(here, 1000.0)], step_p99=[(here, step)],
        step_p50=[(here, 8.0)],
    )  # fmt: skip
    return list(DETECTOR.judge(answers, of))


seconds = st.floats(0, 100)


@given(gap=seconds, usual=seconds, more=seconds)
def test_longer_stops_never_clear_it(gap: float, usual: float, more: float):
    assert len(judged(fleet(), gap + more, usual, 8192)) >= len(judged(fleet(), gap, usual, 8192))


@kit.few
@given(of=kit.fleets(), gap=st.floats(10, 1000), step=st.floats(32, 1e6))
def test_its_edits_hold_in_any_fleet(of: Fleet, gap: float, step: float):
    found = judged(of, gap, 0.01, step)
    assert found
    kit.check(found, of)
