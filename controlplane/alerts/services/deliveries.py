"""The outbox: a row for each message to a receiver, written with what it tells of (services/attempts.py sends them)."""

from __future__ import annotations

import uuid

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from controlplane.alerts import models as rows
from controlplane.alerts.waking import wake_on_commit
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound, Refused
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document
from wire.problems import Problem

NOUN = "delivery"
_FIRING = rows.IncidentState.FIRING
_WAITING, _DELIVERED, _FAILED = rows.DeliveryState.WAITING, rows.DeliveryState.DELIVERED, rows.DeliveryState.FAILED


def enqueue(incident: rows.Incident, status: str) -> int:
    """Write the messages that this asks for, in the caller's transaction; how many. Its commit wakes the worker.

    "firing" goes to every enabled receiver that is not above the incident's severity; called again, after the severity
    rose, to those that are reached now. "resolved" goes to those that a "firing" was written for, also where it failed;
    to one that is off it waits, as the "firing" may.
    """
    receivers = _held_receivers()
    told = set(incident.deliveries.filter(status=_FIRING).values_list("receiver_id", flat=True))
    if status == _FIRING:
        wanted = [one for one in receivers if one.pk not in told and _reaches(incident, one)]
    else:
        wanted = [one for one in receivers if one.pk in told and one.send_resolved]
    now = timezone.now()
    rows.Delivery.objects.bulk_create(
        [rows.Delivery(incident=incident, receiver=one, status=status, created_at=now, due_at=now) for one in wanted],
        ignore_conflicts=True,
    )
    if wanted:
        wake_on_commit()
    return len(wanted)


def _held_receivers() -> list[rows.Receiver]:
    """All of them; none is deleted before the rows that are written for it are there.

    The lock is one that many share: of two transactions that each hold incidents, none waits for the other here.
    """
    receivers = rows.Receiver.objects.order_by("pk")
    if connection.vendor != "postgresql":
        return list(receivers)
    query, parameters = receivers.query.sql_with_params()
    return list(rows.Receiver.objects.raw(f"{query} FOR KEY SHARE", parameters))


def _reaches(incident: rows.Incident, receiver: rows.Receiver) -> bool:
    reached = rows.Severity(incident.severity).rank >= rows.Severity(receiver.min_severity).rank
    return receiver.enabled and reached


def resend(unit: UnitOfWork, delivery_id: uuid.UUID) -> rows.Delivery:
    """Send one that failed anew, as if it had just been written. Raises NotFound, Conflict."""
    row = _found(delivery_id, lock=True)
    if row.state != _FAILED:
        raise Conflict(f"this message is {row.state}; only one that failed is sent again", code="not_failed")
    if _told_more_since(row):
        raise Conflict(
            f"{row.receiver.name} has had a later message about the same labels, which this one would contradict",
            code="out_of_date",
        )
    before = describe(row)
    row.state, row.created_at = _WAITING, timezone.now()
    row.due_at = row.created_at
    row.save(update_fields=["state", "created_at", "due_at"])
    unit.record(NOUN, str(row.pk), before, describe(row))
    wake_on_commit()
    return row


def _told_more_since(row: rows.Delivery) -> bool:
    told = rows.Delivery.objects.filter(
        receiver=row.receiver_id, state=_DELIVERED, incident__fingerprint=row.incident.fingerprint
    )
    later = Q(incident__gt=row.incident_id)
    if row.status == _FIRING:
        later |= Q(incident=row.incident_id, status=rows.IncidentState.RESOLVED)
    return told.filter(later).exists()


def get(delivery_id: uuid.UUID) -> rows.Delivery:
    """Raises NotFound."""
    return _found(delivery_id, lock=False)


def _found(delivery_id: uuid.UUID, *, lock: bool) -> rows.Delivery:
    deliveries = rows.Delivery.objects.select_related("incident", "receiver")
    if lock:
        deliveries = deliveries.select_for_update(of=("self",))
    row = deliveries.filter(pk=delivery_id).first()
    if row is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    return row


def page(
    *, state: str = "", receiver: str = "", limit: int = PAGE_ROWS, after: uuid.UUID | None = None
) -> tuple[list[rows.Delivery], str | None]:
    """Deliveries, the last written first; `after` is the last of the page before. Raises Refused where that is gone."""
    wanted = {name: value for name, value in (("state", state), ("receiver__name", receiver)) if value}
    deliveries = rows.Delivery.objects.select_related("incident", "receiver").filter(**wanted)
    if after is not None:
        last = rows.Delivery.objects.filter(pk=after).first()
        if last is None:
            raise Refused("the page before is gone", [Problem("/after", "reference", "start at the first page again")])
        deliveries = deliveries.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, pk__lt=after))
    return page_of(deliveries.order_by("-created_at", "-pk"), limit, lambda row: str(row.pk))


def describe(row: rows.Delivery) -> Document:
    return {
        "id": str(row.pk),
        "receiver": row.receiver.name,
        "incident": row.incident_id,
        "title": row.incident.title,
        "status": row.status,
        "state": row.state,
        "created_at": f.iso(row.created_at),
        "due_at": f.iso(row.due_at) if row.state == _WAITING else None,
        "attempts": row.attempts,
        "last_error": row.last_error or None,
        "delivered_at": f.iso(row.delivered_at),
    }
