"""Row 19: answers that are cut because something ends or restarts what makes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import iso
from controlplane.diagnosis.detector import Finding
from controlplane.diagnosis.detectors.deploy_and_probes import DeployAndProbes
from controlplane.fleet.services import ENGINES
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram
from wire.write_body import Series

ENGINE: Any = {"engine": "e1", "pool": "chat", "node": "n1"}
REQUEST: Any = {"pool": "chat", "tenant": "acme", "priority_class": "c"}
DETECTOR = DeployAndProbes()
ONCE = 1 / helpers.WINDOW_SECONDS
FAULT = helpers.event("xid", "GPU-n1-0", severity="critical", detail="XID 79")
LONG_AGO = {**FAULT, "at": iso(helpers.AT - timedelta(minutes=40))}


def series(
    restarts: float = ONCE, running: float = 9, cut: float = 9 * ONCE, oom: float = 0.0, drained: float = 0.0
) -> list[Any]:
    return [
        counter("headworks_engine_restarts_total", restarts, **ENGINE),
        gauge("headworks_engine_requests_running", running, **ENGINE),
        counter("headworks_gateway_streams_cut_total", cut, pool="chat", engine="e1", reason="engine_error"),
        counter("headworks_host_oom_kills_total", oom, node="n1"),
        counter(
            "headworks_gateway_requests_total", drained, outcome="failed", reason="draining", gateway="g1", **REQUEST
        ),
        *histogram("headworks_gateway_e2e_seconds", {20.0: 0.9, 200.0: 0.1}, **REQUEST),
        *histogram("headworks_gateway_ttft_seconds", {1.0: 0.9, 90.0: 0.1}, **REQUEST),
    ]


def restarted(times: int, severity: str = "warning", ago: timedelta = timedelta(0)) -> list[Any]:
    return [
        helpers.event("engine_restarted", "e1", id=f"restart-{number}", severity=severity, detail="started again",
                      at=iso(helpers.AT - ago - timedelta(minutes=10 * number)))
        for number in range(times)
    ]  # fmt: skip


def found(*events: Any, engines: tuple[str, ...] = ("e1", "e2"), **given: Any) -> list[Finding]:
    fleet = helpers.fleet([helpers.pool(engines=engines)], events=events)
    return helpers.judged(DETECTOR, series(**given), fleet)


def keyed(finding: Finding) -> dict[str, Any]:
    return {lever.key: lever for lever in finding.levers}


def test_a_restart_that_cuts_streams_is_found():
    (finding,) = found()
    assert (finding.subject, finding.pools, finding.tenants) == ("engine/e1", ("chat",), ("acme",))
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["streams_cut"].value == pytest.approx(9, rel=0.1)
    assert evidence["running_before"].value == 9


@pytest.mark.parametrize(
    "given",
    [
        # It had nothing to do.
        {"running": 0, "cut": 0.0},
        # But for what its agent asked it itself.
        {"running": 1, "cut": 0.0},
        # Streams break off and nothing was restarted: the engine's errors.
        {"restarts": 0.0},
    ],
)
def test_a_restart_after_a_drain_and_an_error_without_a_restart_are_not(given: Any):
    assert not found(**given)


@pytest.mark.parametrize(
    ("event", "is_found"),
    [
        (FAULT, False),
        (helpers.event("engine_hung", "e1", severity="critical", detail="hung"), False),
        (helpers.event("engine_hung", "e2", severity="critical", detail="hung"), True),
        (helpers.event("xid", "GPU-n2-0", node="n2", severity="critical", detail="XID 79"), True),
        (LONG_AGO, True),
    ],
)  # fmt: skip
def test_where_the_gpu_failed_or_it_hung_its_restart_is_the_cure(event: Any, is_found: bool):
    assert bool(found(event)) == is_found


def test_a_restart_that_was_asked_for_counts_where_it_cut_streams():
    assert not found(*restarted(1, severity="info"), cut=0.0)
    assert found(*restarted(1, severity="info"))
    assert found(*restarted(1), cut=0.0)
    assert found(*restarted(1, severity="info", ago=timedelta(minutes=30)), cut=0.0), "another restart was asked for"


def test_a_cordoned_engine_counts_where_it_cut_streams():
    fleet = helpers.fleet(engines=[helpers.engine(cordoned=True)])
    assert not helpers.judged(DETECTOR, series(cut=0.0), fleet)
    assert helpers.judged(DETECTOR, series(), fleet)


def test_an_engine_whose_last_run_ended_out_of_memory_is_row_three():
    ended = gauge("headworks_engine_out_of_memory_exit", 1, **ENGINE)
    assert not helpers.judged(DETECTOR, [*series(), ended], helpers.fleet())
    assert helpers.judged(
        DETECTOR, [*series(), gauge("headworks_engine_out_of_memory_exit", 0, **ENGINE)], helpers.fleet()
    )


def test_one_that_was_started_well_again_within_the_window_still_is():
    name = {"__name__": "headworks_engine_out_of_memory_exit", **ENGINE}
    moments = [helpers.AT_MS - seconds * 1000 for seconds in (90, 60, 30, 0)]
    exits = Series(name, list(zip(moments, (1.0, 1.0, 0.0, 0.0), strict=True)))
    assert not helpers.judged(DETECTOR, [*series(), exits], helpers.fleet())


def test_a_process_that_the_kernel_killed_makes_it_doubtful():
    (sure,), (doubtful,) = found(), found(oom=ONCE)
    assert doubtful.confidence_permille < sure.confidence_permille


def test_the_grace_is_for_the_longest_answers():
    (finding,) = found()
    advice = str(keyed(finding)["drain_first"].advice)
    # 99 of 100 take almost 200 s: one and a half of that, and a minute for the engine's own end.
    assert "limit=2" in advice
    assert "liveness" not in keyed(finding)


def test_a_restart_that_nobody_asked_for_is_a_probe_that_needs_time():
    (finding,) = found(*restarted(1))
    assert "failureThreshold: 1" in str(keyed(finding)["liveness"].advice)
    (asked,) = found(*restarted(1, severity="info"))
    assert "liveness" not in keyed(asked)


def test_one_that_restarts_again_and_again_is_taken_out_where_others_serve():
    (finding,) = found(*restarted(3))
    assert finding.levers[0].edits[0].changes == {"cordoned": True}
    (last,) = found(*restarted(3), engines=("e1",))
    assert "take_out" not in keyed(last)


def test_a_gateway_that_ends_before_its_answers_is_found():
    (finding,) = found(restarts=0.0, drained=3 * ONCE)
    assert finding.subject == "gateway/g1"
    assert "HEADWORKS_GATEWAY_DRAIN_SECONDS=2" in str(finding.levers[0].advice)


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    with unit_of_work(SYSTEM, "for a test") as unit:
        engine = {"url": "http://10.0.0.3:8000", "pool": "chat", "served_model": "m", "node": "n1"}
        ENGINES.create(unit, "e3", engine)
    kit.dry_run(found(*restarted(3), engines=("e1", "e3"))[0])


@given(cut=st.floats(0, 100), more=st.floats(0, 100))
def test_more_cut_streams_never_clear_it(cut: float, more: float):
    def judged(cut: float) -> list[Finding]:
        of_engine = {"engine": "e1"}
        answers = helpers.readings(DETECTOR, restarts=[(of_engine, 1.0)], cut=[(of_engine, cut)])
        return list(DETECTOR.judge(answers, helpers.fleet()))

    if judged(cut):
        assert judged(cut + more)
