"""When an incident is looked at next. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from controlplane.alerts.pipeline.grouping import Timing


class Change(StrEnum):
    """What happened to an incident."""

    # It began, or got another alert, by a rule; an alert of it ended.
    NEWS = "news"
    # An event, or what became critical: past every delay.
    URGENT = "urgent"


def look_at(
    change: Change, timing: Timing, told_at: datetime | None, planned: datetime | None, now: datetime
) -> datetime:
    """When to look after a change at `now`; `planned` is when it would have been looked at anyway.

    What comes together is told together: a group waits for `group_wait` before its first message and before each
    further one, and these stand `group_interval` apart.
    """
    wanted = now if change is Change.URGENT else now + timing.group_wait
    if change is not Change.URGENT and told_at is not None:
        wanted = max(wanted, told_at + timing.group_interval)
    return wanted if planned is None else min(wanted, planned)


def next_look(
    now: datetime, timing: Timing, told_at: Iterable[datetime], others: Iterable[datetime | None]
) -> datetime:
    """When to look at an incident that fires and that has just been looked at: at the first repeat that is due, or at
    the first of `others` that is later than now, such as the end of a silence."""
    moments = [moment + timing.repeat_interval for moment in told_at] + [moment for moment in others if moment]
    return min((moment for moment in moments if moment > now), default=now + timing.repeat_interval)
