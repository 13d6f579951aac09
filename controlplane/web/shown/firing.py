"""What fires now, read once a moment for the frame of every page, the live stream and the overview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.db.models import Case, Count, Q, Value, When, Window

from controlplane.alerts.models import Incident, IncidentState, Severity
from controlplane.web.kept import Kept

SHOWN = 5
_WORST_FIRST = Case(*(When(severity=each, then=Value(-each.rank)) for each in Severity))


class Firing(NamedTuple):
    """How many incidents of each severity fire, the gravest first; and the worst of them, of these the newest."""

    by_severity: Mapping[str, int]
    worst: list[Incident]

    @property
    def incidents(self) -> int:
        return sum(self.by_severity.values())

    @property
    def more(self) -> int:
        """How many there are beside the worst."""
        return self.incidents - len(self.worst)


_firing: Kept[Firing] = Kept()


def firing() -> Firing:
    return _firing.get("", _read)


def _read() -> Firing:
    """One query: each row says how many there are of each severity."""
    counts = {f"all_{each.value}": Window(Count("pk", filter=Q(severity=each))) for each in Severity}
    burning = Incident.objects.filter(state=IncidentState.FIRING).annotate(**counts)
    worst = list(burning.order_by(_WORST_FIRST, "-started_at", "-pk")[:SHOWN])
    counted = {each.value: getattr(worst[0], f"all_{each.value}") if worst else 0 for each in reversed(Severity)}
    return Firing({severity: count for severity, count in counted.items() if count}, worst)
