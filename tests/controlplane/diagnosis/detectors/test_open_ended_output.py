"""Row 10: answers of open length that reserve more than they need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.open_ended_output import OpenEndedOutput
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge

LABELS: dict[str, Any] = {"pool": "chat", "tenant": "acme", "gateway": "g1"}
ENGINE: dict[str, Any] = {"pool": "chat", "engine": "e1"}
DETECTOR = OpenEndedOutput()


def series(left_open: float = 8.0, queue: float = 6, reserved: float = 80_000) -> list[Any]:
    """Of 10 requests a second."""
    return [
        counter("headworks_gateway_requests_total", 10.0, outcome="ok", reason="none", **LABELS),
        counter("headworks_gateway_requests_without_max_tokens_total", left_open, **LABELS),
        counter("headworks_gateway_generation_tokens_total", 1000.0, **LABELS),
        gauge("headworks_gateway_queue_length", queue, pool="chat", gateway="g1"),
        gauge("headworks_gateway_kv_reserved_tokens", reserved, gateway="g1", **ENGINE),
        gauge("headworks_engine_kv_cache_usage_ratio", 0.2, **ENGINE),
    ]


def fleet(default: int = 4096, output: int = 100, **tenant: Any) -> Fleet:
    return helpers.fleet(
        [helpers.pool(lengths=helpers.lengths(output_tokens=output))],
        models=[helpers.model(default_max_tokens=default, max_tokens=8192)],
        tenants=[helpers.tenant(**tenant)],
    )


def found(of: Fleet | None = None, **given: float) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), of or fleet())


def test_open_answers_that_reserve_far_more_than_they_need_are_found():
    (finding,) = found()
    assert (finding.subject, finding.tenants) == ("pool/chat", ("acme",))
    assert finding.confidence_permille >= 850
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert (evidence["open_requests"].value, evidence["open_requests"].limit) == (pytest.approx(0.8), 0.3)
    assert evidence["default_max_tokens"].value == 4096
    # Of 90,000 that may be reserved.
    assert evidence["kv_reserved"].value == pytest.approx(80 / 90)
    assert evidence["kv_use"].value == pytest.approx(0.2)


def test_a_few_that_reserve_most_of_it_are_found_as_well():
    """One in ten reserves 4,096 tokens, the others 512: nearly half; of two in ten it is two thirds."""
    assert not found(left_open=1.0)
    (finding,) = found(left_open=2.0)
    assert {part.name: part.value for part in finding.evidence}["reserved_by_open"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "given",
    [
        {"left_open": 1.0},
        # Nobody waits, and there is room: it costs nobody anything.
        {"queue": 0, "reserved": 40_000},
    ],
)
def test_few_open_answers_or_a_pool_with_room_are_none(given: dict[str, Any]):
    assert not found(**given)


def test_a_default_that_fits_what_is_measured_is_none():
    of = fleet(default=300, output=100)
    assert not found(of)


def test_default_and_ceilings_come_from_measured_answers():
    (finding,) = found()
    changes = {lever.key: (lever.edits[0].noun, lever.edits[0].key, lever.edits[0].changes) for lever in finding.levers}
    lengths = fleet().pools["chat"].lengths
    assert lengths is not None
    p95, p99 = lengths.output_tokens[950], lengths.output_tokens[990]
    assert changes == {
        "default_max_tokens": ("models", "llama", {"default_max_tokens": p95}),
        "max_tokens_cap": ("tenants", "acme", {"max_tokens_cap": p99}),
        # A ceiling below the default would be refused.
        "max_tokens": ("models", "llama", {"max_tokens": p99, "default_max_tokens": p95}),
    }


def test_after_the_lever_it_is_clear():
    (finding,) = found()
    needed = finding.levers[0].edits[0].changes["default_max_tokens"]
    assert not found(fleet(default=needed))


def test_answers_that_are_cut_off_at_the_default_get_the_seeds_own():
    """Seed 1, section 10: 512, where a client asks for none."""
    (finding,) = found(fleet(default=4096, output=4096))
    assert finding.levers[0].edits[0].changes == {"default_max_tokens": 512}


def test_a_ceiling_that_the_tenant_has_already_stays():
    (finding,) = found(fleet(max_tokens_cap=50))
    assert [lever.key for lever in finding.levers] == ["default_max_tokens", "max_tokens"]


def test_before_lengths_are_known_three_means_are_taken():
    of = helpers.fleet(models=[helpers.model(default_max_tokens=4096, max_tokens=8192)])
    (finding,) = found(of)
    # 100 tokens an answer.
    assert [lever.edits[0].changes for lever in finding.levers] == [{"default_max_tokens": 300}]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found(helpers.fleet(models=[helpers.model(default_max_tokens=4096, max_tokens=4096)]))
    kit.dry_run(finding)
    (finding,) = found(fleet())
    kit.dry_run(finding)


def judged(of: Fleet, left_open: float, queue: float) -> list[Finding]:
    here = {"pool": "chat", "tenant": "acme"}
    answers = helpers.readings(
        DETECTOR,
        open=[(here, left_open)],
        all_requests=[(here, 100.0)],
        queue=[({"pool": "chat"}, queue)],
        output_rate=[({"pool": "chat"}, 10.0)],
        answer_rate=[({"pool": "chat"}, 5.0)],
    )
    return list(DETECTOR.judge(answers, of))


shares = st.floats(0, 100)


@given(left_open=shares, queue=shares, more=shares, more_queue=shares)
def test_worse_numbers_never_clear_it(left_open: float, queue: float, more: float, more_queue: float):
    of = fleet()
    assert len(judged(of, left_open + more, queue + more_queue)) >= len(judged(of, left_open, queue))


@kit.few
@given(of=kit.fleets(), left_open=st.floats(30, 100), queue=st.floats(1, 1e6))
def test_its_edits_hold_in_any_fleet(of: Fleet, left_open: float, queue: float):
    kit.check(judged(of, left_open, queue), of)
