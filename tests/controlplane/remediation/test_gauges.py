"""How repairs stand, as metrics."""

from __future__ import annotations

from django.utils import timezone

from controlplane.remediation import gauges
from controlplane.remediation.models import RemediationPolicy


def test_a_tripped_breaker_and_what_waits_are_told(db: None) -> None:
    def told() -> dict[str, float]:
        return {sample.name: sample.value for family in gauges.families(timezone.now()) for sample in family.samples}

    assert told() == {"headworks_repairs_held": 0, "headworks_repair_breaker_tripped": 0}
    RemediationPolicy.objects.create(pk=1, tripped_at=timezone.now(), tripped_because="2 nodes")
    assert told()["headworks_repair_breaker_tripped"] == 1
