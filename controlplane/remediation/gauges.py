"""How repairs stand, as metrics: those that wait, and whether the breaker lets none begin."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.remediation.models import Remediation, State
from controlplane.remediation.services import policy


def families(_now: datetime) -> Iterator[Metric]:
    held = gauge("repairs_held", "Repairs of nodes that wait: for a cordon, for a person, or for the breaker.")
    held.add_metric((), Remediation.objects.filter(state=State.HELD).count())
    tripped = gauge("repair_breaker_tripped", "1 while no repair begins, since too many nodes were taken in hand.")
    tripped.add_metric((), policy().tripped_at is not None)
    yield from (held, tripped)
