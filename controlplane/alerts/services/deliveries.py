"""The outbox: a row for each message to a receiver, written with what it tells of (services/attempts.py sends them)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from django.db import connection
from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.utils import timezone

from controlplane.alerts import models as rows
from controlplane.alerts.breaker import ALERTNAME
from controlplane.alerts.receivers.registry import channel_of
from controlplane.alerts.waking import wake_on_commit
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound, Refused
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document
from wire.problems import Problem

NOUN = "delivery"
# One write's worth: what is beyond it failed as well, and is sent by the next call.
RESENT_AT_ONCE = 1000
_FIRING = rows.IncidentState.FIRING
_WAITING, _DELIVERED, _FAILED = rows.DeliveryState.WAITING, rows.DeliveryState.DELIVERED, rows.DeliveryState.FAILED


def enqueue(
    incident: rows.Incident, receivers: Sequence[rows.Receiver], *, occasion: str, status: str, digest: str = ""
) -> int:
    """Write a message to each of these receivers, in the caller's transaction; how many. Its commit wakes the worker.

    `occasion` is why (models.Occasion), `status` the incident's, `digest` of which alerts fired. Left out are receivers
    that are gone since, that the incident itself says fail, and those whose kind has no word for the occasion.
    """
    # Held, so that of two that write at once none takes the other's number.
    list(rows.Incident.objects.select_for_update(no_key=True).filter(pk=incident.pk).values_list("pk"))
    about = _failing_receivers(incident)
    wanted = [one for one in held({one.pk for one in receivers}) if _takes(one, occasion, about)]
    written = incident.deliveries.values_list("receiver").annotate(Max("number")).order_by()
    last: dict[int, int] = dict(written.filter(receiver__in=wanted))
    now = timezone.now()
    rows.Delivery.objects.bulk_create(
        rows.Delivery(
            incident=incident,
            receiver=one,
            number=last.get(one.pk, 0) + 1,
            occasion=occasion,
            digest=digest,
            status=status,
            created_at=now,
            due_at=now,
        )
        for one in wanted
    )
    if wanted:
        wake_on_commit()
    return len(wanted)


def held(ids: Collection[int]) -> list[rows.Receiver]:
    """Those that are still there; none is deleted before the rows that are written for it are there.

    The lock is one that many share: of two transactions that each hold incidents, none waits for the other here.
    """
    receivers = rows.Receiver.objects.filter(pk__in=ids).order_by("pk")
    if connection.vendor != "postgresql" or not ids:
        return list(receivers)
    query, parameters = receivers.query.sql_with_params()
    return list(rows.Receiver.objects.raw(f"{query} FOR KEY SHARE", parameters))


def _takes(receiver: rows.Receiver, occasion: str, about: Collection[str]) -> bool:
    channel = channel_of(receiver.kind)
    if not channel.takes_incidents or receiver.name in about:
        return False
    return occasion != rows.Occasion.ACKNOWLEDGED or channel.takes_acknowledged


def _failing_receivers(incident: rows.Incident) -> set[str]:
    """Names of the receivers that the incident says fail."""
    alerts = incident.alerts.filter(labels__alertname=ALERTNAME).values_list("labels", flat=True)
    return {labels.get("receiver", "") for labels in alerts}


def resend(unit: UnitOfWork, delivery_id: uuid.UUID) -> rows.Delivery:
    """Send one that failed anew, as if it had just been written. Raises NotFound, Conflict."""
    row = _found(delivery_id, lock=True)
    if row.state != _FAILED:
        raise Conflict(f"this message is {row.state}; only one that failed is sent again", code="not_failed")
    if not _uncontradicted(rows.Delivery.objects.filter(pk=row.pk)).exists():
        raise Conflict(
            f"{row.receiver.name} has had a later message about the same labels, which this one would contradict",
            code="out_of_date",
        )
    _again(unit, [row])
    return row


def resend_failed(unit: UnitOfWork, receiver: rows.Receiver) -> list[rows.Delivery]:
    """Send anew each message to the receiver that failed and that no later one would be contradicted by."""
    failed = rows.Delivery.objects.select_related("incident", "receiver").filter(receiver=receiver, state=_FAILED)
    held = _uncontradicted(failed).select_for_update(of=("self",)).order_by("created_at", "pk")
    found = list(held[:RESENT_AT_ONCE])
    _again(unit, found)
    return found


def _again(unit: UnitOfWork, found: Sequence[rows.Delivery]) -> None:
    now = timezone.now()
    for row in found:
        before = describe(row)
        row.state, row.created_at, row.due_at = _WAITING, now, now
        unit.record(NOUN, str(row.pk), before, describe(row))
    rows.Delivery.objects.filter(pk__in=[row.pk for row in found]).update(state=_WAITING, created_at=now, due_at=now)
    if found:
        wake_on_commit()


def _uncontradicted(failed: QuerySet[rows.Delivery]) -> QuerySet[rows.Delivery]:
    """Those of whose labels the receiver has had no later message that says otherwise."""
    told = rows.Delivery.objects.filter(
        receiver=OuterRef("receiver"), state=_DELIVERED, incident__fingerprint=OuterRef("incident__fingerprint")
    )
    of_a_later_incident = told.filter(incident__gt=OuterRef("incident"))
    later = told.filter(incident=OuterRef("incident"), number__gt=OuterRef("number"))
    return failed.exclude(Exists(of_a_later_incident)).exclude(Q(Exists(later), status=_FIRING))


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
        "number": row.number,
        "occasion": row.occasion,
        "status": row.status,
        "state": row.state,
        "created_at": f.iso(row.created_at),
        "due_at": f.iso(row.due_at) if row.state == _WAITING else None,
        "attempts": row.attempts,
        "last_error": row.last_error or None,
        "delivered_at": f.iso(row.delivered_at),
    }


def describe_attempt(row: rows.DeliveryAttempt) -> Document:
    return {
        "number": row.number,
        "at": f.iso(row.at),
        "took_ms": row.took_ms,
        "reason": row.reason,
        "status": row.status,
        "text": row.text,
    }
