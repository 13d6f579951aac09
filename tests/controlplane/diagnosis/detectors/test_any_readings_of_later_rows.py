"""Detectors of rows 11 to 20 on any readings and fleets: they judge without failing, and offer what can be done."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.api_server_bound import ApiServerBound
from controlplane.diagnosis.detectors.cold_start import ColdStart
from controlplane.diagnosis.detectors.deploy_and_probes import DeployAndProbes
from controlplane.diagnosis.detectors.fan_out import FanOut
from controlplane.diagnosis.detectors.ghost_work import GhostWork
from controlplane.diagnosis.detectors.hardware import Hardware
from controlplane.diagnosis.detectors.repeat_questions import RepeatQuestions
from controlplane.diagnosis.detectors.runaway_agent import RunawayAgent
from controlplane.diagnosis.detectors.schema_compile import SchemaCompile
from controlplane.diagnosis.detectors.sockets import Sockets
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit, wider

DETECTORS: tuple[Detector, ...] = (
    GhostWork(), RepeatQuestions(), FanOut(), RunawayAgent(), Sockets(), ApiServerBound(), SchemaCompile(), ColdStart(),
    DeployAndProbes(), Hardware(),
)  # fmt: skip
each = pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)


@each
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_it_judges_anything(detector: Detector, data: st.DataObject):
    fleet = data.draw(wider.fleets())
    kit.check(detector.judge(data.draw(wider.readings(detector)), fleet), fleet)


@each
def test_where_nothing_is_known_nothing_is_found(detector: Detector):
    assert not list(detector.judge(helpers.readings(detector), helpers.fleet()))
    assert not list(detector.judge(helpers.readings(detector), helpers.fleet([], engines=[], tenants=[], models=[])))
