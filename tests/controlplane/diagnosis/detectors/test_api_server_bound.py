"""Row 16: the API server's process is full while the GPU waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Command, Finding, Fleet
from controlplane.diagnosis.detectors.api_server_bound import ApiServerBound
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

ENGINE: Any = {"engine": "e1", "pool": "chat", "node": "n1"}
GPU: Any = {"node": "n1", "gpu": "0", "UUID": "GPU-n1-0"}
REQUEST: Any = {"pool": "chat", "tenant": "acme", "priority_class": "c"}
DETECTOR = ApiServerBound()


def series(
    cores: float = 0.99, gpu: float | None = 35, waiting: float = 8, ttft: float = 1.0, engine_ttft: float = 0.1,
    unseen: float = 0.0, cpus: float = 64, gateway: float = 0.1,
) -> list[Any]:  # fmt: skip
    """Of another engine on another GPU the same is so, but for its processes."""
    found = [
        counter("headworks_engine_process_cpu_seconds_total", cores, role="api", **ENGINE),
        counter("headworks_engine_process_cpu_seconds_total", 0.9, role="core", **ENGINE),
        counter("headworks_engine_process_cpu_seconds_total", 0.2, role="api", engine="e2", node="n1"),
        gauge("headworks_engine_requests_waiting", waiting, **ENGINE),
        gauge("headworks_host_cpus", cpus, node="n1"),
        *histogram("headworks_gateway_ttft_seconds", {ttft: 5.0}, **REQUEST),
        *histogram("headworks_gateway_queue_seconds", {0.01: 5.0}, **REQUEST),
        *histogram("headworks_engine_ttft_seconds", {engine_ttft: 5.0}, **ENGINE),
        counter("headworks_gateway_unseen_schemas_total", unseen, pool="chat", tenant="acme"),
        counter("headworks_gateway_cpu_seconds_total", gateway, gateway="g1"),
    ]
    if gpu is not None:
        used = {**GPU, "device": "nvidia0", "Hostname": "n1"}
        found += [
            gauge("DCGM_FI_DEV_GPU_UTIL", gpu, **used),
            gauge("DCGM_FI_DEV_GPU_UTIL", 99, node="n1", gpu="1", UUID="GPU-n1-1"),
            gauge("headworks_gpu_processes", 3, engine="e1", **used),
            gauge("headworks_gpu_processes", 1, engine="e2", node="n1", gpu="1", UUID="GPU-n1-1"),
            gauge("headworks_gpu_processes", 1, **used),
        ]
    return found


def of(**engine: Any) -> Fleet:
    node = helpers.node(allowed_acts={name: ["drain", "restart"] for name in ("e1", "e2")})
    return helpers.fleet(
        [helpers.pool(engines=("e1", "e2"))], engines=[helpers.engine(**engine), helpers.engine("e2")], nodes=[node]
    )


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or of())


def test_a_full_process_before_a_gpu_with_time_is_found():
    (finding,) = found()
    assert (finding.subject, finding.pools) == ("engine/e1", ("chat",))
    assert finding.confidence_permille >= 900
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["cores_a_process"].value == pytest.approx(0.99)
    assert evidence["gpu_used"].value == pytest.approx(0.35)
    assert evidence["between_engine_and_gateway"].value == pytest.approx(0.89)


@pytest.mark.parametrize(
    "given",
    [
        {"cores": 0.7},
        # The GPU is what all wait for.
        {"gpu": 97},
        # Nothing says that anybody waits for this process.
        {"gpu": None, "waiting": 0, "ttft": 0.11},
        {"gpu": 70, "waiting": 0, "ttft": 0.11},
    ],
)
def test_what_is_not_full_or_not_waited_for_is_not(given: dict[str, Any]):
    assert not found(**given)


def test_where_gpus_are_not_known_the_way_of_the_first_token_tells_it():
    (finding,) = found(gpu=None)
    assert "gpu_used" not in {part.name for part in finding.evidence}


def test_several_processes_have_a_core_each():
    assert not found(of(arguments={"api_server_count": "4"}), cores=2.0)
    assert found(of(arguments={"api_server_count": "4"}), cores=3.9)
    # vLLM starts one for each rank.
    assert not found(of(arguments={"data_parallel_size": "2"}), cores=1.0)


def test_schemas_that_compile_explain_it_too():
    (sure,), (doubtful,) = found(), found(unseen=0.5)
    assert doubtful.confidence_permille < sure.confidence_permille


def test_more_processes_are_asked_for_as_their_work_says():
    (finding,) = found(of(arguments={"api_server_count": "2"}), cores=1.9)
    more, fewer_writes = finding.levers
    # 1.9 cores at 0.6 each.
    assert more.edits[0].changes == {"engine_arguments": {"api-server-count": 4}}
    assert more.commands == (
        Command("engine/e1", "drain", {"limit_seconds": 600}),
        Command("engine/e1", "restart", {"arguments": {"api-server-count": 4}}),
    )
    assert fewer_writes.edits[0].changes == {"engine_arguments": {"stream-interval": 3}}


def test_no_more_processes_than_the_node_has_processors_for():
    (finding,) = found(of(arguments={"api_server_count": "2"}), cores=1.9, cpus=6)
    assert finding.levers[0].edits[0].changes == {"engine_arguments": {"api-server-count": 3}}


def test_other_arguments_of_the_pool_stay():
    pool = helpers.pool(engine_arguments={"max-num-seqs": 64})
    (finding,) = found(helpers.fleet([pool]))
    assert finding.levers[0].edits[0].changes["engine_arguments"] == {"max-num-seqs": 64, "api-server-count": 2}
    # It is the pool's only engine.
    assert not finding.levers[0].commands


def test_another_kind_of_engine_is_advised():
    (finding,) = found(of(kind="tgi"))
    (lever,) = finding.levers
    assert not lever.edits
    assert lever.advice


def test_a_gateway_whose_loop_is_full_is_found_where_first_tokens_are_late():
    assert [each.subject for each in found(cores=0.1, gateway=0.98)] == ["gateway/g1"]
    assert not found(cores=0.1, gateway=0.98, ttft=0.11)


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found()[0])


@given(cores=st.floats(0, 50), more=st.floats(0, 50))
def test_more_work_of_the_process_never_clears_it(cores: float, more: float):
    def judged(cores: float) -> list[Finding]:
        answers = helpers.readings(DETECTOR, cores=[({"engine": "e1"}, cores)], gpu=[({"engine": "e1"}, 30.0)])
        return list(DETECTOR.judge(answers, of()))

    if judged(cores):
        assert judged(cores + more)
