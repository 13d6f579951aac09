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
from controlplane.alerts import breaker
from controlplane.alerts import models as rows
from controlplane.alerts.delivery_plan import Limits, Outcome, Reason, Waiting, is_overtaken, next_attempt
from controlplane.alerts.services import breakers, incidents
from controlplane.core.reported import reported_text

# What an attempt may take beyond its bound on HTTP: its own rows, and a clock that another worker reads.
LEASE_MARGIN = timedelta(seconds=5)
# Of one message, the last attempts are kept.
ATTEMPTS_KEPT = 20
_FIRING = rows.IncidentState.FIRING
_WAITING, _DELIVERED, _FAILED = rows.DeliveryState.WAITING, rows.DeliveryState.DELIVERED, rows.DeliveryState.FAILED


def receivers_due(now: datetime) -> list[int]:
    """Ids of the receivers that a message is due for."""
    return list(_due(now).order_by("receiver_id").values_list("receiver_id", flat=True).distinct())


def claim(receiver_id: int, now: datetime) -> rows.Delivery | None:
    """Take the receiver's next message for one attempt, with its incident and receiver; None: nothing may be sent now.

    Messages that later ones have overtaken are done with on the way.
    """
    due = _due(now).filter(receiver_id=receiver_id).select_related("incident", "receiver").order_by("due_at", "pk")
    while (row := due.first()) is not None:
        if _is_overtaken(row):
            _unclaimed(row).update(state=rows.DeliveryState.OVERTAKEN)
            continue
        if not _may_begin(row.receiver, now):
            return None
        if _claimed(row, now):
            row.attempts += 1
            return row
    return None


def lease() -> timedelta:
    """How long a claim holds."""
    return timedelta(seconds=settings_rows.WEBHOOK_TIMEOUT_SECONDS.read()) + LEASE_MARGIN


def _due(now: datetime) -> QuerySet[rows.Delivery]:
    """Messages whose time has come and whose receiver's breaker is not open, but none before an earlier one about the
    same labels to the same receiver.

    Else a receiver that was away would be told of a new incident first, and then that the one before it is over.
    """
    earlier = rows.Delivery.objects.filter(
        state=_WAITING, receiver=OuterRef("receiver"), incident__fingerprint=OuterRef("incident__fingerprint")
    )
    older_incident = earlier.filter(incident__lt=OuterRef("incident"))
    of_this_incident = earlier.filter(incident=OuterRef("incident"), number__lt=OuterRef("number"))
    closed = Q(receiver__open_until=None) | Q(receiver__open_until__lte=now)
    waiting = rows.Delivery.objects.filter(closed, state=_WAITING, due_at__lte=now, receiver__enabled=True)
    return waiting.exclude(Exists(older_incident)).exclude(Exists(of_this_incident))


def _is_overtaken(row: rows.Delivery) -> bool:
    of_the_same = rows.Delivery.objects.filter(incident=row.incident_id, receiver=row.receiver_id)
    later = of_the_same.filter(state=_WAITING, number__gt=row.number).values_list("occasion", "status")
    waiting = [Waiting(*each) for each in later]
    if not waiting:
        return False
    told = of_the_same.filter(state=_DELIVERED, status=_FIRING).exists()
    return is_overtaken(Waiting(row.occasion, row.status), waiting, told=told)


def _may_begin(receiver: rows.Receiver, now: datetime) -> bool:
    """Whether its breaker and its rate let another attempt begin. Of an open one, this is the only probe."""
    if receiver.open_until is None:
        return receiver.rate_limit_per_minute == 0 or bool(_taken(receiver, now))
    probe = rows.Receiver.objects.filter(pk=receiver.pk, open_until=receiver.open_until)
    return bool(probe.update(open_until=now + lease()))


def _taken(receiver: rows.Receiver, now: datetime) -> bool:
    """Whether a token was taken from its bucket: of several that take at once, each has its own."""
    while True:
        full_at = breaker.take(receiver.bucket_full_at, receiver.rate_limit_per_minute, now)
        if full_at is None:
            return False
        unchanged = rows.Receiver.objects.filter(pk=receiver.pk, bucket_full_at=receiver.bucket_full_at)
        if unchanged.update(bucket_full_at=full_at):
            return True
        receiver.refresh_from_db(fields=["bucket_full_at"])


def _claimed(row: rows.Delivery, now: datetime) -> bool:
    """None is changed where another worker was faster: there may be a next one."""
    return bool(_unclaimed(row).update(due_at=now + lease(), attempts=F("attempts") + 1))


def _unclaimed(row: rows.Delivery) -> QuerySet[rows.Delivery]:
    return rows.Delivery.objects.filter(pk=row.pk, state=_WAITING, due_at=row.due_at, attempts=row.attempts)


def settle(row: rows.Delivery, outcome: Outcome, now: datetime, took: timedelta = timedelta(0)) -> None:
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
        receiver = breakers.hold(row.receiver_id, outcome, now)
        claimed = rows.Delivery.objects.filter(pk=row.pk, state=_WAITING, attempts=row.attempts)
        if receiver is None or not claimed.update(**changed):
            return
        _keep(row, outcome, now, took)
        breakers.follow(receiver, outcome, now)
        if retry_at is None:
            kind, text = _entry(row, outcome)
            details = {"receiver": row.receiver.name, "delivery": str(row.pk), "attempts": row.attempts}
            incidents.note(row.incident, kind, text, now, details)


def _keep(row: rows.Delivery, outcome: Outcome, now: datetime, took: timedelta) -> None:
    """The attempt, for people to see; of many, the last ones."""
    row.tries.create(
        number=row.attempts,
        at=now - took,
        took_ms=took // timedelta(milliseconds=1),
        reason=outcome.reason.value,
        status=outcome.status,
        text=reported_text(outcome.said or outcome.text),
    )
    row.tries.filter(number__lte=row.attempts - ATTEMPTS_KEPT).delete()


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
