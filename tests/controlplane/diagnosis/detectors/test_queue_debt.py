"""Row 8: queues that are longer than anybody waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.queue_debt import QueueDebt
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram
from wire.write_body import Series

LABELS: dict[str, Any] = {"pool": "chat", "tenant": "acme", "gateway": "g1"}
ENGINE: dict[str, Any] = {"pool": "chat", "engine": "e1"}
DETECTOR = QueueDebt()


def series(
    queue: float = 200, served: float = 8.0, refused: float = 4.0, waiting: float = 0, **more: float
) -> list[Any]:
    return [
        gauge("headworks_gateway_queue_length", queue, pool="chat", gateway="g1"),
        gauge("headworks_gateway_pool_requests", more.get("in_flight", 20), pool="chat", gateway="g1"),
        gauge("headworks_engine_requests_waiting", waiting, **ENGINE),
        gauge("headworks_engine_kv_cache_usage_ratio", more.get("use", 0.5), **ENGINE),
        counter("headworks_gateway_requests_total", served, outcome="ok", reason="none", **LABELS),
        counter("headworks_gateway_requests_total", refused, outcome="refused", reason="queue_timeout", **LABELS),
        counter("headworks_gateway_repeated_requests_total", more.get("retries", 0.0), kind="retry", **LABELS),
        *histogram("headworks_gateway_queue_seconds", {20.0: served}, **LABELS),
    ]


def fleet(**changes: Any) -> Fleet:
    return helpers.fleet([helpers.pool(**{"queue_cap": 1000, "queue_ttl_ms": 60_000, **changes})])


def found(of: Fleet | None = None, **given: float) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), of or fleet())


def test_the_seeds_own_example():
    """Seed 1, section 8: 8 requests a second and 5 s that are acceptable make a queue of 40."""
    (finding,) = found()
    assert finding.subject == "pool/chat"
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert (evidence["queue"].value, evidence["queue"].limit) == (200, pytest.approx(60, abs=2))
    assert evidence["service_rate"].value == pytest.approx(8.0)
    assert evidence["unserved_share"].value == pytest.approx(1 / 3)
    (lever,) = finding.levers
    assert (lever.key, lever.edits[0].changes) == ("queue", {"queue_cap": 40, "queue_ttl_ms": 5000})


def test_what_is_acceptable_is_what_the_pool_promises():
    (finding,) = found(fleet(ttft_slo_ms=1500))
    assert finding.levers[0].edits[0].changes == {"queue_cap": 12, "queue_ttl_ms": 1500}


def test_who_waits_the_longest_has_a_first_token_in_time_still():
    """An engine that takes 0.5 s for it leaves 1.5 s of the 2 s that are promised to the queue."""
    first = histogram("headworks_engine_ttft_seconds", {0.5: 8.0}, **ENGINE)
    of = fleet(ttft_slo_ms=2000)
    (finding,) = helpers.judged(DETECTOR, [*series(), *first], of)
    changes = finding.levers[0].edits[0].changes
    assert 1500 <= changes["queue_ttl_ms"] < 1600
    assert changes["queue_cap"] == pytest.approx(8 * changes["queue_ttl_ms"] / 1000, abs=1)
    slow = histogram("headworks_engine_ttft_seconds", {30.0: 8.0}, **ENGINE)
    (finding,) = helpers.judged(DETECTOR, [*series(), *slow], of)
    assert finding.levers[0].edits[0].changes["queue_ttl_ms"] == 1000


def test_a_queue_as_long_as_its_lever_makes_it_is_none():
    (finding,) = found()
    cap = finding.levers[0].edits[0].changes["queue_cap"]
    assert not found(fleet(queue_cap=cap, queue_ttl_ms=5000), queue=cap)


@pytest.mark.parametrize(
    "given",
    [
        {"queue": 50},
        # Long, and neither growing nor refusing: long requests in front (row 5).
        {"refused": 0.0},
        # Nobody is served, so nothing is known of the rate.
        {"served": 0.0},
        # A cache that is full (row 1), retries (row 9).
        {"use": 0.99, "waiting": 5},
        {"retries": 6.0},
    ],
)
def test_queues_that_are_served_or_have_another_cause_are_none(given: dict[str, Any]):
    assert not found(**given)


def test_a_queue_that_grows_is_a_debt_before_anybody_is_refused():
    times = range(helpers.AT_MS - 600_000, helpers.AT_MS + 1, 5000)
    grows = Series(
        {"__name__": "headworks_gateway_queue_length", "pool": "chat", "gateway": "g1"},
        [(at, (at - times[0]) / 1000 * 3) for at in times],
    )
    (finding,) = helpers.judged(DETECTOR, [grows, *series(refused=0.0)[1:]], fleet())
    # 3 of 11 a second.
    assert {part.name: part.value for part in finding.evidence}["unserved_share"] == pytest.approx(3 / 11, rel=0.01)


def test_a_queue_inside_the_engines_is_brought_out_of_them():
    (finding,) = found(queue=2, waiting=100, in_flight=130)
    (lever,) = [each for each in finding.levers if each.key == "concurrency"]
    assert lever.edits[0].changes == {"max_concurrency": 30}


def test_caps_that_are_low_enough_are_not_offered():
    assert not [lever for each in found(fleet(queue_cap=40, queue_ttl_ms=5000)) for lever in each.levers]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found(queue=40, waiting=100, in_flight=130)
    assert len(finding.levers) == 2
    kit.dry_run(finding)


def judged(of: Fleet, queue: float, refused: float, served: float = 5.0, waiting: float = 0.0) -> list[Finding]:
    here = {"pool": "chat"}
    answers = helpers.readings(
        DETECTOR,
        served=[(here, served)],
        arriving=[(here, served)],
        refused_rate=[(here, refused)],
        queue=[(here, queue)],
        waiting=[({**here, "engine": "e1"}, waiting)],
        in_flight=[(here, waiting + 7)],
    )
    return list(DETECTOR.judge(answers, of))


numbers = st.floats(0, 10_000)


@given(queue=numbers, refused=numbers, more=numbers, more_refused=numbers)
def test_longer_queues_and_more_refusals_never_clear_it(queue: float, refused: float, more: float, more_refused: float):
    of = fleet()
    assert len(judged(of, queue + more, refused + more_refused)) >= len(judged(of, queue, refused))


@kit.few
@given(of=kit.fleets(), queue=st.floats(1000, 1e6), served=st.floats(0.01, 50), waiting=numbers)
def test_its_edits_hold_in_any_fleet(of: Fleet, queue: float, served: float, waiting: float):
    found = judged(of, queue, served, served, waiting)
    assert found
    kit.check(found, of)
