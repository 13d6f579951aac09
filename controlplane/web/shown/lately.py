"""What changed last, and what is kept quiet: the foot of the overview, which moves slowly."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from controlplane.alerts.models import MaintenanceWindow, Silence
from controlplane.alerts.services.standing import window_of
from controlplane.core.models import AuditEntry

CHANGES_SHOWN = 6


class Muted(NamedTuple):
    """`until` is None for a maintenance window that never ends."""

    name: str
    is_window: bool
    until: datetime | None


def changes() -> list[AuditEntry]:
    """The newest first."""
    return list(AuditEntry.objects.order_by("-pk")[:CHANGES_SHOWN])


def muted() -> list[Muted]:
    """Silences and maintenance windows that are on, silences that end first before the others."""
    now = timezone.now()
    silences = Silence.objects.filter(starts_at__lte=now, ends_at__gt=now).order_by("ends_at", "name")
    windows = [(row, window_of(row)) for row in MaintenanceWindow.objects.filter(enabled=True).order_by("name")]
    return [
        *(Muted(row.name, False, row.ends_at) for row in silences),
        *(Muted(row.name, True, window.next_change(now)) for row, window in windows if window.is_on(now)),
    ]
