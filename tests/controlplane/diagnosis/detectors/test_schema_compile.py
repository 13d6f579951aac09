"""Row 17: schemas that engines have never seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.schema_compile import SchemaCompile
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

ACME: Any = {"pool": "chat", "tenant": "acme"}
REQUEST: Any = {**ACME, "priority_class": "c"}
DETECTOR = SchemaCompile()


def series(
    unseen: float = 1.0,
    requests: float = 5.0,
    compile_seconds: float = 2.0,
    queued: float = 0.001,
    restarts: float = 0.0,
) -> list[Any]:
    """Of the requests so many bring a new schema, whose first token comes that much later than 0.1 s."""
    late = {0.1: requests - unseen, 0.1 + compile_seconds: unseen}
    return [
        counter("headworks_gateway_unseen_schemas_total", unseen, **ACME),
        counter("headworks_gateway_requests_total", requests, outcome="ok", reason="none", **REQUEST),
        *histogram("headworks_gateway_ttft_seconds", late if compile_seconds else {0.1: requests}, **REQUEST),
        *histogram("headworks_gateway_queue_seconds", {queued: requests}, **REQUEST),
        counter("headworks_engine_restarts_total", restarts, engine="e1", pool="chat"),
    ]


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or helpers.fleet())


def test_new_schemas_with_late_first_tokens_are_found():
    (finding,) = found()
    assert (finding.subject, finding.tenants) == ("pool/chat", ("acme",))
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["new_schemas"].value == pytest.approx(0.2)
    assert evidence["late_first_token"].value > 10 * evidence["usual_first_token"].value


@pytest.mark.parametrize(
    "given",
    [
        # First tokens come as always: small schemas.
        {"compile_seconds": 0.0},
        # Late ones, and no new schema to speak of: rows 4, 5 and 8.
        {"unseen": 0.1},
        {"unseen": 0.01, "requests": 0.05},
    ],
)
def test_late_first_tokens_alone_and_schemas_alone_are_not(given: Any):
    assert not found(**given)


def test_a_schema_of_its_own_for_nearly_each_request_is_compared_with_those_that_had_none():
    (finding,) = found(unseen=4.0)
    assert "same_schema" in {lever.key for lever in finding.levers}


@pytest.mark.parametrize("given", [{"queued": 2.0}, {"restarts": 0.05}])
def test_what_else_makes_first_tokens_late_lowers_it(given: Any):
    (sure,), (doubtful,) = found(), found(**given)
    assert doubtful.confidence_permille < sure.confidence_permille


def test_as_many_schemas_are_allowed_as_fit_into_a_hundredth_of_the_time():
    (finding,) = found()
    cap = finding.levers[0]
    (edit,) = cap.edits
    late = {part.name: part.value for part in finding.evidence}
    seconds = late["late_first_token"] - late["usual_first_token"]
    assert (edit.noun, edit.key) == ("tenants", "acme")
    assert edit.changes == {"schema_limits": {"max_distinct": int(36 / seconds)}}
    tight = helpers.tenant()
    tight["schema_limits"] = {**tight["schema_limits"], "max_distinct": 4}
    (bounded,) = found(helpers.fleet(tenants=[tight]))
    assert "fewer_schemas" not in {lever.key for lever in bounded.levers}


ENGINE: Any = {"engine": "e1", "pool": "chat", "node": "n1"}
HELD: Any = {"node": "n1", "gpu": "0", "UUID": "GPU-n1-0"}


def masking(constrained: float = 4.0, cores: float = 1.0, gpu: float | None = 20, running: float = 30) -> list[Finding]:
    """Of 5 requests a second so many must obey a schema, each a known one."""
    told = [
        counter("headworks_gateway_constrained_requests_total", constrained, **ACME),
        counter("headworks_gateway_requests_total", 5.0, outcome="ok", reason="none", **REQUEST),
        counter("headworks_engine_process_cpu_seconds_total", cores, role="core", **ENGINE),
        gauge("headworks_engine_requests_running", running, **ENGINE),
        gauge("headworks_gpu_processes", 1, engine="e1", **HELD),
    ]
    told += [] if gpu is None else [gauge("DCGM_FI_DEV_GPU_UTIL", gpu, **HELD)]
    return helpers.judged(DETECTOR, told, helpers.fleet())


def test_constraints_that_cost_more_than_the_model_are_found_at_the_engine():
    (finding,) = masking()
    assert (finding.subject, finding.pools) == ("engine/e1", ("chat",))
    fewer, _ = finding.levers
    # At 20 % of a step for the GPU a quarter of the 30 make both parts as long.
    assert fewer.edits[0].changes == {"max_concurrency": 7}


@pytest.mark.parametrize(
    "given",
    [
        # Single requests never show it; an engine's core is busy with anything; the GPU has no time.
        {"running": 1},
        {"constrained": 1.0},
        {"gpu": 90},
        {"cores": 0.4},
        {"gpu": None},
    ],
)
def test_what_few_requests_or_a_busy_gpu_show_is_not(given: Any):
    assert not masking(**given)


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found()[0])
    kit.dry_run(masking()[0])


@given(unseen=st.floats(0, 200), late=st.floats(0, 60), more=st.floats(0, 60))
def test_later_first_tokens_never_clear_it(unseen: float, late: float, more: float):
    def judged(late: float) -> list[Finding]:
        of_pool = {"pool": "chat"}
        answers = helpers.readings(
            DETECTOR, unseen=[(ACME, unseen)], requests=[(ACME, 200.0)], ttft_low=[(of_pool, 0.1)],
            ttft_middle=[(of_pool, 0.1)], ttft_high=[(of_pool, late)], ttft_highest=[(of_pool, late)],
        )  # fmt: skip
        return list(DETECTOR.judge(answers, helpers.fleet()))

    if judged(late):
        assert judged(late + more)
