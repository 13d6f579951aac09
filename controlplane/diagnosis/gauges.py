"""What the diagnosis finds, as metrics: findings by detector, how sure they are, and who is blind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import DetectorState
from controlplane.diagnosis.standing import open_findings


def families(now: datetime) -> Iterator[Metric]:
    """Of a detector that is blind there is no number of findings: it is not known."""
    errors = dict(DetectorState.objects.values_list("name", "error"))
    found = open_findings()
    counted = Counter(finding.detector for finding in found)
    findings = gauge("diagnosis_findings", "Places at which the detector finds its bottleneck.", "detector")
    blind = gauge("diagnosis_blind", "1: the detector could not see in the last round.", "detector")
    for detector in DETECTORS:
        if (error := errors.get(detector.name)) is not None:
            blind.add_metric((detector.name,), bool(error))
            if not error:
                findings.add_metric((detector.name,), counted[detector.name])
    sure = gauge(
        "diagnosis_confidence_ratio", "How sure a finding is, 0 to 1: how far nothing else explains it.", "detector",
        "subject",
    )  # fmt: skip
    for finding in found:
        sure.add_metric((finding.detector, finding.subject), finding.confidence_permille / 1000)
    yield from (findings, blind, sure)
