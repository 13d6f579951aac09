"""Row 7: models spread over GPUs that they do not need, or that PCIe connects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.wrong_parallelism import WrongParallelism
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import gauge

DETECTOR = WrongParallelism()
GIB = 2**30
# 16 GB of an 8B model, and 140 GB of a 70B model.
SMALL, LARGE = 15 * GIB, 131 * GIB


def links(kind: str) -> list[Any]:
    return [
        gauge("headworks_gpu_topology_info", 1, node="n1", gpu=gpu, peer=peer, link=kind)
        for gpu, peer in (("0", "1"), ("1", "0"))
    ]


def waits(requests: float) -> Any:
    return gauge("headworks_engine_requests_waiting", requests, pool="chat", engine="e1")


def fleet(model_bytes: int | None = SMALL, ranks: str = "2", **changes: Any) -> Fleet:
    engine = helpers.engine(arguments={"tensor_parallel_size": ranks}, model_bytes=model_bytes)
    return helpers.fleet([helpers.pool(**changes)], engines=[engine], gpus=[helpers.gpu(index=0), helpers.gpu(index=1)])


def found(series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, series, of or fleet())


def test_a_small_model_over_pcie_is_found_and_replicated():
    (finding,) = found(links("SYS"))
    assert (finding.subject, finding.confidence_permille) == ("pool/chat", 900)
    evidence = {part.name: part.value for part in finding.evidence}
    assert (evidence["tensor_parallel"], evidence["links_without_nvlink"]) == (2, 1)
    # 80 GiB × 0.92 - 15 GiB - 4 GB, in 128 KiB a token.
    assert evidence["kv_tokens_on_one_gpu"] == pytest.approx((80 * 0.92 - 15 - 4e9 / GIB) * GIB / 131_072, rel=0.001)
    (lever,) = finding.levers
    assert (lever.key, lever.edits[0].changes) == ("replicas", {"engine_arguments": {"tensor-parallel-size": 1}})
    assert "data-parallel-size 2" in str(lever.advice)


def test_a_model_that_needs_both_gets_a_pipeline_over_pcie():
    (finding,) = found(links("PHB"), fleet(LARGE))
    assert finding.confidence_permille == 600
    (lever,) = finding.levers
    assert lever.edits[0].changes == {"engine_arguments": {"tensor-parallel-size": 1, "pipeline-parallel-size": 2}}


def test_over_nvlink_a_model_that_fits_one_is_a_choice_until_requests_wait():
    assert not found(links("NV18"))
    (finding,) = found([*links("NV18"), waits(5)])
    assert finding.confidence_permille == 650
    assert [lever.key for lever in finding.levers] == ["replicas"]


@pytest.mark.parametrize(
    ("series", "of"),
    [
        ([*links("NV18"), waits(5)], fleet(LARGE)),
        # Nobody tells how large it is or how they are linked.
        ([waits(5)], fleet(None)),
        ([*links("SYS"), waits(5)], fleet(ranks="1")),
        # Its longest context would not fit beside the weights.
        ([*links("NV18"), waits(5)], fleet(68 * GIB)),
    ],
)
def test_what_is_spread_as_it_must_be_or_not_known_is_none(series: list[Any], of: Fleet):
    assert not found(series, of)


def test_links_of_gpus_that_it_does_not_use_do_not_count():
    held = [gauge("headworks_gpu_process_memory_bytes", GIB, node="n1", gpu=gpu, engine="e1") for gpu in ("0", "1")]
    others = [gauge("headworks_gpu_topology_info", 1, node="n1", gpu="2", peer="3", link="SYS")]
    assert not found([*held, *others, *links("NV18")])


def test_a_short_name_in_the_desired_arguments_gives_way():
    (finding,) = found(links("SYS"), fleet(engine_arguments={"tp": 2, "max-num-seqs": 64}))
    assert finding.levers[0].edits[0].changes == {"engine_arguments": {"max-num-seqs": 64, "tensor-parallel-size": 1}}


@pytest.mark.django_db
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_its_levers_can_be_applied(stored: None, size: int):
    (finding,) = found(links("SYS"), fleet(size))
    kit.dry_run(finding)


@kit.few
@given(of=kit.fleets(), waiting=st.floats(0, 100), link=st.sampled_from(["NV18", "SYS", "PIX"]))
def test_its_edits_hold_in_any_fleet(of: Fleet, waiting: float, link: str):
    pair: dict[str, Any] = {"node": "n1", "gpu": "0", "peer": "1", "link": link}
    answers = helpers.readings(DETECTOR, links=[(pair, 1.0)], waiting=[({"pool": "chat"}, waiting)])
    kit.check(DETECTOR.judge(answers, of), of)


@given(waiting=st.floats(0, 100), more=st.floats(0, 100))
def test_more_that_wait_never_clear_it(waiting: float, more: float):
    def judged(requests: float) -> list[Finding]:
        pair: dict[str, Any] = {"node": "n1", "gpu": "0", "peer": "1", "link": "NV18"}
        answers = helpers.readings(DETECTOR, links=[(pair, 1.0)], waiting=[({"pool": "chat"}, requests)])
        return list(DETECTOR.judge(answers, fleet()))

    assert len(judged(waiting + more)) >= len(judged(waiting))
