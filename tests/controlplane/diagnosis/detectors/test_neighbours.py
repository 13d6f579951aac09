"""On the series of one row's cause that row's detector finds something, and none of the nineteen others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controlplane.diagnosis.detectors.registry import DETECTORS
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import (
    test_api_server_bound,
    test_deploy_and_probes,
    test_fan_out,
    test_ghost_work,
    test_hardware,
    test_head_of_line,
    test_kv_exhausted,
    test_preemption_thrash,
    test_prefill_stall,
    test_queue_debt,
    test_repeat_questions,
    test_runaway_agent,
    test_schema_compile,
    test_sockets,
)
from wire.write_body import Series

CAUSES: dict[str, Sequence[Series]] = {
    "kv_exhausted": test_kv_exhausted.series(),
    "preemption_thrash": test_preemption_thrash.series(),
    "prefill_stall": test_prefill_stall.series(),
    "head_of_line": test_head_of_line.mixed(),
    "queue_debt": test_queue_debt.series(),
    "ghost_work": test_ghost_work.series(),
    "repeat_questions": test_repeat_questions.series(),
    "fan_out": test_fan_out.series(),
    "runaway_agent": test_runaway_agent.series(loops=0.5, busiest=300),
    "sockets": test_sockets.series(files=1000),
    "api_server_bound": test_api_server_bound.series(),
    "schema_compile": test_schema_compile.series(),
    "deploy_and_probes": test_deploy_and_probes.series(),
    "hardware": test_hardware.series(hot=1),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_only_the_detector_of_the_cause_fires(cause: str):
    fleet = helpers.fleet([helpers.pool(lengths=helpers.lengths())])
    assert [each.name for each in DETECTORS if helpers.judged(each, CAUSES[cause], fleet)] == [cause]
