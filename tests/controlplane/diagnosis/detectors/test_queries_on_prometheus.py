"""What detectors of rows 11 to 20 ask has a real Prometheus' answers, on the series that their tests are made of."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from controlplane.diagnosis.asking import expressions
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import (
    test_api_server_bound,
    test_deploy_and_probes,
    test_fan_out,
    test_ghost_work,
    test_hardware,
    test_repeat_questions,
    test_runaway_agent,
    test_schema_compile,
    test_sockets,
)
from tests.controlplane.diagnosis.detectors.test_any_readings_of_later_rows import DETECTORS
from tests.controlplane.diagnosis.helpers import counter, gauge
from tests.controlplane.telemetry.twins import COUNT, JITTER_MS, STEP_MS, Twins, compare, running_twins
from wire.write_body import METRIC_NAME, Series

MODULES = (
    test_api_server_bound, test_deploy_and_probes, test_fan_out, test_ghost_work, test_hardware, test_repeat_questions,
    test_runaway_agent, test_schema_compile, test_sockets,
)  # fmt: skip
MORE = (
    gauge("headworks_engine_model_bytes", 1, place="network", filesystem="nfs4", node="n1", engine="e1"),
    gauge("pool:headworks_gateway_generation_tokens:rate1m", 1, pool="chat"),
    gauge("headworks_engine_out_of_memory_exit", 1, node="n1", engine="e1"),
    gauge("headworks_gateway_pool_requests", 1, gateway="gw-1", pool="chat"),
    gauge("headworks_gpu_mig_instances", 7, **test_hardware.WHICH),
    gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, **test_hardware.WHICH),
    gauge("headworks_engine_connections", 1, state="backlog", node="n1", engine="e1"),
    counter("headworks_engine_generation_tokens_total", 1, node="n1", engine="e1", pool="chat"),
    counter("headworks_gateway_cancelled_tokens_total", 1, pool="chat", tenant="acme"),
    counter("headworks_gateway_constrained_requests_total", 1, pool="chat", tenant="acme"),
)
_COUNTERS = ("_total", "_bucket", "_count", "_sum", "_VOL_TOTAL")
ASKED = list(
    dict.fromkeys(promql for detector in DETECTORS for promql in expressions(detector, helpers.WINDOW_SECONDS).values())
)


def fleet(begin_ms: int) -> list[Series]:
    """Each of their series once, with other numbers; a bucket holds what the narrower ones of its histogram hold."""
    dice = random.Random(20)
    every = {tuple(sorted(each.labels.items())): each.labels for module in MODULES for each in module.series()}
    every |= {tuple(sorted(each.labels.items())): each.labels for each in MORE}
    below: dict[tuple[tuple[str, str], ...], list[float]] = {}
    found = []
    for _, labels in sorted(
        every.items(), key=lambda each: (each[1].get(METRIC_NAME, ""), float(each[1].get("le", 0)))
    ):
        times_ms = [begin_ms + JITTER_MS + place * STEP_MS + dice.randrange(100) for place in range(COUNT)]
        values = [dice.uniform(0.1, 2) for _ in range(COUNT)]
        if labels[METRIC_NAME].endswith(_COUNTERS):
            values = [10**6 + sum(values[: place + 1]) for place in range(COUNT)]
        if "le" in labels:
            whole = tuple(sorted((name, value) for name, value in labels.items() if name != "le"))
            narrower = below.get(whole, [0.0] * COUNT)
            values = below[whole] = [value + less for value, less in zip(values, narrower, strict=True)]
        found.append(Series(labels, list(zip(times_ms, values, strict=True))))
    return found


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with running_twins(tmp_path_factory.mktemp("twins"), fleet) as both:
        yield both


@pytest.mark.parametrize("promql", ASKED)
def test_what_is_asked_has_the_answer_that_prometheus_has(twins: Twins, promql: str):
    compare(twins, promql)
    asked = {"query": promql, "start": twins.begin_ms / 1000, "end": twins.end_ms / 1000, "step": 15}
    assert twins.theirs("query_range", **asked)["data"]["result"], "nothing was compared"
