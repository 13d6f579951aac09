"""Sending the outbox: which message is due, who sends it, and how that ended.

A row is claimed by moving `due_at` into the future, beyond the longest that an attempt can take: of several workers one
changes the row, and when one dies the row becomes due again. `attempts` counts with the claim, so that an outcome only
counts for the attempt that it is of.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.delivery_plan import Limits, Outcome, Reason, next_attempt
from controlplane.alerts.services import incidents
from controlplane.core.reported import reported_text

# What an attempt may take beyond its bound on HTTP: its own rows, and a clock that another worker reads.
LEASE_MARGIN = timedelta(seconds=5)
_FIRING, _RESOLVED = rows.IncidentState.FIRING, rows.IncidentState.RESOLVED
_WAITING, _DELIVERED, _FAILED = rows.DeliveryState.WAITING, rows.DeliveryState.DELIVERED, rows.DeliveryState.FAILED


def receivers_due(now: datetime) -> list[int]:
    """Ids of the receivers that a message is due for."""
    return list(_due(now).order_by("receiver_id").values_list("receiver_id", flat=True).distinct())


def claim(receiver_id: int, now: datetime) -> rows.Delivery | None:
    """Take the receiver's next message for one attempt, with its incident and receiver; None: nothing is due."""
    due = _due(now).filter(receiver_id=receiver_id).select_related("incident", "receiver").order_by("due_at", "pk")
    while (row := due.first()) is not None:
        lease = timedelta(seconds=settings_rows.WEBHOOK_TIMEOUT_SECONDS.read()) + LEASE_MARGIN
        unclaimed = rows.Delivery.objects.filter(pk=row.pk, state=_WAITING, due_at=row.due_at, attempts=row.attempts)
        # None is changed where another worker was faster: there may be a next one.
        if unclaimed.update(due_at=now + lease, attempts=F("attempts") + 1):
            row.attempts += 1
            return row
    return None


def _due(now: datetime) -> QuerySet[rows.Delivery]:
    """Messages whose time has come, but none before an earlier one about the same labels to the same receiver.

    Else a receiver that was away would be told of a new incident first, and then that the one before it is over.
    """
    earlier = rows.Delivery.objects.filter(
        state=_WAITING, receiver=OuterRef("receiver"), incident__fingerprint=OuterRef("incident__fingerprint")
    )
    older_incident = earlier.filter(incident__lt=OuterRef("incident"))
    its_firing = earlier.filter(incident=OuterRef("incident"), status=_FIRING)
    waiting = rows.Delivery.objects.filter(state=_WAITING, due_at__lte=now, receiver__enabled=True)
    return waiting.exclude(Exists(older_incident)).exclude(Q(status=_RESOLVED) & Q(Exists(its_firing)))


def settle(row: rows.Delivery, outcome: Outcome, now: datetime) -> None:
    """Write down how the claimed attempt ended. An outcome whose claim is no longer the last one changes nothing."""
    taken = outcome.reason is Reason.TAKEN
    draw = random.random()  # noqa: S311
    retry_at = None if taken else next_attempt(outcome, row.attempts, row.created_at, now, _limits(), draw)
    changed = {
        "state": _DELIVERED if taken else _FAILED if retry_at is None else _WAITING,
        "due_at": retry_at or now,
        "last_error": reported_text(outcome.error),
        "delivered_at": now if taken else None,
    }
    with transaction.atomic():
        claimed = rows.Delivery.objects.filter(pk=row.pk, state=_WAITING, attempts=row.attempts)
        if not claimed.update(**changed) or retry_at is not None:
            return
        kind, text = _entry(row, outcome)
        details = {"receiver": row.receiver.name, "delivery": str(row.pk), "attempts": row.attempts}
        incidents.note(row.incident, kind, text, now, details)


def _entry(row: rows.Delivery, outcome: Outcome) -> tuple[str, str]:
    attempts = f"{row.attempts} attempt{'' if row.attempts == 1 else 's'}"
    if outcome.reason is Reason.TAKEN:
        return "delivered", f"{row.receiver.name} was told that it is {row.status}, in {attempts}"
    return (
        "delivery_failed",
        f"{row.receiver.name} could not be told that it is {row.status}, in {attempts}: {outcome.error}",
    )


def _limits() -> Limits:
    return Limits(
        retry_max=timedelta(seconds=settings_rows.WEBHOOK_RETRY_MAX_SECONDS.read()),
        give_up=timedelta(seconds=settings_rows.WEBHOOK_GIVE_UP_SECONDS.read()),
    )
