"""Detectors of rows 1 to 10 on readings and fleets of any kind: they judge, and offer what can be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.head_of_line import HeadOfLine
from controlplane.diagnosis.detectors.kv_exhausted import KvExhausted
from controlplane.diagnosis.detectors.noisy_neighbour import NoisyNeighbour
from controlplane.diagnosis.detectors.open_ended_output import OpenEndedOutput
from controlplane.diagnosis.detectors.preemption_thrash import PreemptionThrash
from controlplane.diagnosis.detectors.prefill_stall import PrefillStall
from controlplane.diagnosis.detectors.queue_debt import QueueDebt
from controlplane.diagnosis.detectors.retry_storm import RetryStorm
from controlplane.diagnosis.detectors.vram_fragmentation import VramFragmentation
from controlplane.diagnosis.detectors.wrong_parallelism import WrongParallelism
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit

DETECTORS: tuple[Detector, ...] = (
    KvExhausted(), PreemptionThrash(), VramFragmentation(), PrefillStall(), HeadOfLine(), NoisyNeighbour(),
    WrongParallelism(), QueueDebt(), RetryStorm(), OpenEndedOutput(),
)  # fmt: skip
each = pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)


@each
@kit.few
@given(data=st.data())
def test_it_judges_anything(detector: Detector, data: st.DataObject):
    fleet = data.draw(kit.fleets())
    kit.check(detector.judge(data.draw(kit.readings(detector)), fleet), fleet)


@each
def test_where_nothing_is_known_nothing_is_found(detector: Detector):
    assert not list(detector.judge(helpers.readings(detector), helpers.fleet()))
    assert not list(detector.judge(helpers.readings(detector), helpers.fleet([], engines=[], tenants=[], models=[])))
