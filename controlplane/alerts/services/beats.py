"""What receivers are told by the clock: that all is well (heartbeat), or what still fires (alertmanager).

A receiver says itself when it is due. Who sends claims that by a conditional update: of several workers one does, and
what one that is killed has claimed is due again after the pause.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.receivers.registry import CHANNELS, channel_of
from controlplane.alerts.services import breakers

# What is due and not done for so long does not move; a worker sweeps every few seconds.
STANDSTILL = timedelta(seconds=60)
RULE_PAUSES = 3
_KINDS = [kind for kind, channel in CHANNELS.items() if channel.by_the_clock]


def due(now: datetime) -> list[rows.Receiver]:
    """Receivers that are to be told something by the clock now."""
    open_to = rows.Receiver.objects.filter(kind__in=_KINDS, enabled=True)
    return list(open_to.filter(Q(heartbeat_due_at=None) | Q(heartbeat_due_at__lte=now)).order_by("pk"))


def claim(row: rows.Receiver, now: datetime) -> bool:
    """Take this telling; False where another worker did. The next one is due a pause later."""
    unclaimed = rows.Receiver.objects.filter(pk=row.pk, enabled=True, heartbeat_due_at=row.heartbeat_due_at)
    row.heartbeat_due_at = now + _pause(row)
    return bool(unclaimed.update(heartbeat_due_at=row.heartbeat_due_at))


def settle(row: rows.Receiver, outcome: Outcome, now: datetime) -> None:
    """Write down how a claimed telling ended. One that failed comes again in a quarter of the pause."""
    with transaction.atomic():
        if held := breakers.hold(row.pk, outcome, now):
            breakers.follow(held, outcome, now)
        if outcome.reason is not Reason.TAKEN:
            claimed = rows.Receiver.objects.filter(pk=row.pk, heartbeat_due_at=row.heartbeat_due_at)
            claimed.update(heartbeat_due_at=now + _pause(row) / 4)


def standstill(now: datetime) -> str:
    """Why nobody may say that all is well; empty where all is: rules are evaluated in time, messages written and sent.

    That the database answers is shown by this.
    """
    rule_pause = timedelta(seconds=settings_rows.RULE_INTERVAL_SECONDS.read())
    late_rules = rows.Rule.objects.filter(enabled=True, due_at__lt=now - max(STANDSTILL, RULE_PAUSES * rule_pause))
    if late_rules.exists():
        return "rules are not evaluated in time"
    if rows.Incident.objects.filter(notify_at__lt=now - STANDSTILL).exists():
        return "incidents are not looked at in time"
    # One that fails, or is held to a rate, waits for its own reasons.
    kept = Q(receiver__enabled=False) | Q(receiver__failures_in_a_row__gt=0) | Q(receiver__rate_limit_per_minute__gt=0)
    waiting = rows.Delivery.objects.filter(state=rows.DeliveryState.WAITING, due_at__lt=now - STANDSTILL)
    if waiting.exclude(kept).exists():
        return "messages are not sent in time"
    return ""


def hold_back(row: rows.Receiver, why: str) -> None:
    """Say on a heartbeat's row why it is not sent."""
    rows.Receiver.objects.filter(pk=row.pk).update(last_error=f"held back: {why}")


def is_heartbeat(row: rows.Receiver) -> bool:
    return not channel_of(row.kind).takes_incidents


def _pause(row: rows.Receiver) -> timedelta:
    return timedelta(seconds=channel_of(row.kind).every_seconds(row.settings))
