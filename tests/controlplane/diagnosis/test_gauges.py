"""What is found, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from controlplane.core import gauges as registered
from controlplane.diagnosis import gauges
from tests.controlplane.diagnosis.conftest import Sure, finding


def _read(at: datetime) -> dict[str, float]:
    return {
        f"{sample.name}{tuple(sample.labels.values())}": sample.value
        for family in gauges.families(at)
        for sample in family.samples
    }


def test_findings_and_blindness_are_counted(
    rounds: Callable[..., datetime], detector: Sure, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gauges, "DETECTORS", (detector,))
    detector.finds = [finding(), finding("pool/other", confidence=500)]
    assert _read(rounds()) == {
        "headworks_diagnosis_findings('kv_exhausted',)": 2,
        "headworks_diagnosis_blind('kv_exhausted',)": 0,
        "headworks_diagnosis_confidence_ratio('kv_exhausted', 'pool/chat')": 0.9,
        "headworks_diagnosis_confidence_ratio('kv_exhausted', 'pool/other')": 0.5,
    }
    detector.fails = ValueError()
    told = _read(rounds())
    assert told["headworks_diagnosis_blind('kv_exhausted',)"] == 1
    assert "headworks_diagnosis_findings('kv_exhausted',)" not in told


def test_they_are_among_those_that_the_page_and_the_store_get():
    assert gauges.families in registered._sources
