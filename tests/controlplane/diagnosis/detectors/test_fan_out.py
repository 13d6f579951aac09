"""Row 13: sessions of several model calls each, in pools that cannot keep up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.fan_out import FanOut
from controlplane.fleet.services import POOLS
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge

ACME: Any = {"pool": "chat", "tenant": "acme"}
REQUEST: Any = {**ACME, "priority_class": "interactive"}
DETECTOR = FanOut()


def series(
    calls: float = 4.0, sessions: float = 0.5, queue: float = 5, busiest: float = 12, loops: float = 0.0,
    away: float = 0.0, missed: float = 0.0,
) -> list[Any]:  # fmt: skip
    """Rates a second; `queue` stands in the pool's line, `busiest` is the longest session."""
    return [
        counter("headworks_gateway_session_requests_total", calls, **ACME),
        counter("headworks_gateway_sessions_total", sessions, tenant="acme"),
        gauge("headworks_gateway_session_calls_highest", busiest, gateway="g1", tenant="acme"),
        counter("headworks_gateway_repeated_tool_calls_total", loops, tenant="acme"),
        counter("headworks_gateway_requests_total", 5.0, outcome="ok", reason="none", **REQUEST),
        counter("headworks_gateway_requests_total", away, outcome="refused", reason="queue_full", **REQUEST),
        counter("headworks_gateway_slo_requests_total", missed, outcome="missed", **REQUEST),
        counter("headworks_gateway_slo_requests_total", 5.0 - missed, outcome="met", **REQUEST),
        gauge("headworks_gateway_queue_length", queue, gateway="g1", pool="chat"),
    ]


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or helpers.fleet())


def searching(gpu: str = "0") -> list[Any]:
    """The series, with an embedding pool on this GPU; the pool that generates is on GPU 0."""
    return [
        *series(),
        counter("headworks_gateway_session_requests_total", 1.0, pool="vectors", tenant="acme"),
        gauge("headworks_gpu_processes", 1, engine="e1", node="n1", gpu="0", UUID="GPU-0"),
        gauge("headworks_gpu_processes", 1, engine="v1", node="n1", gpu=gpu, UUID=f"GPU-{gpu}"),
    ]


def beside(**vectors: Any) -> Fleet:
    """An embedding pool on the node of the pool that generates."""
    return helpers.fleet(
        [helpers.pool(max_concurrency=40), helpers.pool("vectors", engines=("v1",), work="embedding", **vectors)],
        engines=[helpers.engine("e1"), helpers.engine("v1", pool="vectors")],
    )


def test_sessions_of_many_calls_in_a_pool_that_is_short_are_found():
    (finding,) = found()
    assert (finding.subject, finding.pools, finding.tenants) == ("tenant/acme", ("chat",), ("acme",))
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["calls_per_session"].value == pytest.approx(8.0)
    assert evidence["queue_of_chat"].value == 5
    (lever,) = finding.levers
    assert "8.0" in str(lever.advice)


def test_a_retrieval_of_four_calls_is_one():
    assert found(calls=2.0, sessions=0.5)
    assert not found(calls=1.9, sessions=0.5)


@pytest.mark.parametrize("given", [{"away": 0.5}, {"missed": 1.0}])
def test_a_pool_that_turns_away_or_misses_is_short_too(given: Any):
    assert found(queue=0, **given)


@pytest.mark.parametrize(
    "given",
    [
        # The pools keep up: that is how the tenant works.
        {"queue": 0},
        # One session makes most of the calls, or goes round in circles: row 14.
        {"busiest": 300},
        {"loops": 1.0},
        # Too few sessions to tell.
        {"sessions": 0.02, "calls": 0.2},
    ],
)
def test_what_is_well_or_another_rows_is_not(given: Any):
    assert not found(**given)


def test_an_embedding_pool_beside_the_one_that_generates_is_bounded():
    (finding,) = helpers.judged(DETECTOR, searching(), beside())
    levers = {lever.key: lever for lever in finding.levers}
    assert levers["side_budget"].edits[0].key == "vectors"
    # A quarter of the 40 that chat may have.
    assert levers["side_budget"].edits[0].changes == {"max_concurrency": 10}
    (bounded,) = helpers.judged(DETECTOR, searching(), beside(max_concurrency=10))
    assert "side_budget" not in {lever.key for lever in bounded.levers}
    (apart,) = helpers.judged(DETECTOR, searching(gpu="1"), beside())
    assert "side_budget" not in {lever.key for lever in apart.levers}


def shared() -> Fleet:
    return helpers.fleet(
        [helpers.pool(max_concurrency=40)],
        tenants=[helpers.tenant(weight=1), helpers.tenant("globex", weight=3)],
        tenants_of={"chat": {"acme": 0.8, "globex": 0.2}},
    )


def test_the_tenants_calls_are_bounded_by_its_weight():
    levers = {lever.key: lever for lever in found(shared())[0].levers}
    assert levers["own_share"].edits[0].changes == {"max_parallel_requests": 10}


@pytest.mark.parametrize(("calls", "first"), [(4.0, "own_share"), (2.0, "side_budget")])
def test_who_fills_the_pool_is_bounded_first_and_else_what_it_asks_beside(calls: float, first: str):
    of = beside()
    of = replace(
        of,
        tenants={"acme": helpers.tenant(weight=1), "globex": helpers.tenant("globex", weight=3)},
        tenants_of={"chat": {"acme": 0.5, "globex": 0.5}, "vectors": {"acme": 1.0}},
    )
    vectors = counter("headworks_gateway_session_requests_total", 1.0, pool="vectors", tenant="acme")
    shares = [each for each in searching() if each.labels["__name__"] == "headworks_gpu_processes"]
    (finding,) = helpers.judged(DETECTOR, [*series(calls=calls), vectors, *shares], of)
    assert {finding.levers[0].key, finding.levers[1].key} == {"own_share", "side_budget"}
    assert finding.levers[0].key == first


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    with unit_of_work(SYSTEM, "for a test") as unit:
        POOLS.create(unit, "vectors", {"model": "llama", "work": "embedding"})
    (finding,) = helpers.judged(DETECTOR, searching(), beside())
    kit.dry_run(finding)
    kit.dry_run(found(shared())[0])


@given(calls=st.floats(0, 1000), more=st.floats(0, 1000))
def test_more_calls_never_clear_it(calls: float, more: float):
    def judged(calls: float) -> list[Finding]:
        answers = helpers.readings(
            DETECTOR, calls=[(ACME, calls)], sessions=[({"tenant": "acme"}, 20.0)], queue=[({"pool": "chat"}, 3.0)]
        )
        return list(DETECTOR.judge(answers, helpers.fleet()))

    if judged(calls):
        assert judged(calls + more)
