"""Row 3: engines that end for want of GPU memory, and strangers that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.vram_fragmentation import VramFragmentation
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import gauge

GIB = 2**30
ENGINE: dict[str, Any] = {"node": "n1", "engine": "e1", "pool": "chat"}
DETECTOR = VramFragmentation()
# Seed 1, section 3: with 15 GB free an allocation of 4 GB fails.
SEED = {"asked": 4 * GIB, "free": 15 * GIB}


def exit_series(ended: float, parts: Mapping[str, float]) -> list[Any]:
    told = [gauge("headworks_engine_out_of_memory_bytes", size, part=part, **ENGINE) for part, size in parts.items()]
    return [gauge("headworks_engine_out_of_memory_exit", ended, **ENGINE), *told]


def stranger(gib: float) -> list[Any]:
    return [
        gauge("headworks_gpu_process_memory_bytes", 70 * GIB, node="n1", gpu="0", engine="e1"),
        gauge("headworks_gpu_process_memory_bytes", gib * GIB, node="n1", gpu="0"),
    ]


def fleet(**engine: Any) -> Fleet:
    return helpers.fleet([helpers.pool(engines=("e1", "e2"))], engines=[helpers.engine(**engine), helpers.engine("e2")])


def found(series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, series, of or fleet())


def test_an_end_with_memory_free_is_found():
    (finding,) = found(exit_series(1, SEED))
    assert (finding.subject, finding.pools) == ("engine/e1", ("chat",))
    assert finding.confidence_permille == 850
    assert {part.name: part.value for part in finding.evidence} == {
        "ended_out_of_memory": 1.0, "asked": 4 * GIB, "free": 15 * GIB,
    }  # fmt: skip
    assert "4.0 GiB" in str(finding.summary)
    assert [lever.key for lever in finding.levers] == ["eager", "allocator"]
    assert finding.levers[0].edits[0].changes == {"engine_arguments": {"enforce-eager": True}}
    assert "expandable_segments:True" in str(finding.levers[1].advice)


def test_what_pytorch_held_and_did_not_use_was_there_as_well():
    (finding,) = found(exit_series(1, {"asked": 4 * GIB, "free": GIB, "unallocated": 4 * GIB}))
    assert finding.confidence_permille == 850


def test_an_end_with_too_little_free_is_less_surely_fragmented():
    (finding,) = found(exit_series(1, {"asked": 4 * GIB, "free": GIB}))
    assert finding.confidence_permille < 700


@pytest.mark.parametrize("series", [exit_series(0, {}), [], stranger(2)])
def test_an_engine_that_ended_otherwise_beside_a_small_neighbour_is_none(series: list[Any]):
    assert not found(series)


def test_a_stranger_on_an_engines_gpu_is_found_and_left_room():
    (finding,) = found(stranger(8))
    # A tenth of the GPU.
    assert {part.name: part.value for part in finding.evidence} == {"held_by_no_engine": pytest.approx(0.1)}
    assert [lever.key for lever in finding.levers] == ["move_neighbour", "gpu_memory_utilization"]
    # 0.92 - 0.1, in hundredths.
    assert finding.levers[1].edits[0].changes == {"engine_arguments": {"gpu-memory-utilization": "0.82"}}


def test_a_stranger_on_a_gpu_of_no_engine_is_none():
    assert not found([gauge("headworks_gpu_process_memory_bytes", 70 * GIB, node="n1", gpu="0")])


def test_with_a_stranger_beside_it_an_end_is_the_surer():
    (alone,), (beside,) = found(exit_series(1, SEED)), found([*exit_series(1, SEED), *stranger(8)])
    assert beside.confidence_permille > alone.confidence_permille


def test_an_eager_engine_is_not_made_eager():
    (finding,) = found(exit_series(1, SEED), fleet(arguments={"enforce_eager": "true"}))
    assert [lever.key for lever in finding.levers] == ["allocator"]


def test_an_engine_that_its_node_may_restart_is_restarted_by_the_lever():
    node = helpers.node(allowed_acts={"e1": ["drain", "restart"]})
    of = helpers.fleet(
        [helpers.pool(engines=("e1", "e2"))], engines=[helpers.engine(), helpers.engine("e2")], nodes=[node]
    )
    (finding,) = found(exit_series(1, SEED), of)
    assert [(each.subject, each.action) for each in finding.levers[0].commands] == [
        ("engine/e1", "drain"), ("engine/e1", "restart"),
    ]  # fmt: skip


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    (finding,) = found([*exit_series(1, SEED), *stranger(8)])
    kit.dry_run(finding)


sizes = st.none() | st.floats(0, 1e12)


@kit.few
@given(of=kit.fleets(), asked=sizes, free=sizes, unallocated=sizes, held=st.floats(0, 1e12))
def test_its_edits_hold_in_any_fleet(
    of: Fleet, asked: float | None, free: float | None, unallocated: float | None, held: float
):
    told = {"asked": asked, "free": free, "unallocated": unallocated}
    parts = [({"engine": "e1", "part": part}, size) for part, size in told.items() if size is not None]
    gpu: dict[str, Any] = {"node": "n1", "gpu": "0"}
    answers = helpers.readings(
        DETECTOR,
        ended=[({"pool": "chat", "engine": "e1"}, 1.0)],
        bytes=parts,
        strangers=[(gpu, held)],
        engines=[({**gpu, "engine": "e1"}, 1e9), ({**gpu, "engine": "e2"}, 1e9)],
    )
    found = list(DETECTOR.judge(answers, of))
    assert "engine/e1" in {finding.subject for finding in found}
    kit.check(found, of)


@given(held=st.floats(0, 1e12), more=st.floats(0, 1e12))
def test_more_that_strangers_hold_never_clears_it(held: float, more: float):
    def judged(size: float) -> list[Finding]:
        gpu: dict[str, Any] = {"node": "n1", "gpu": "0"}
        answers = helpers.readings(DETECTOR, strangers=[(gpu, size)], engines=[({**gpu, "engine": "e1"}, 1e9)])
        return list(DETECTOR.judge(answers, fleet()))

    assert len(judged(held + more)) >= len(judged(held))
