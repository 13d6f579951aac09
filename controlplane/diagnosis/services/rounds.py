"""Whose turn a round is, and how it was."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from controlplane import settings_rows
from controlplane.diagnosis.models import Round

_ONLY = 1


def claim(now: datetime) -> bool:
    """Whether a round is due, and this worker's: of several one moves the row on."""
    row, _ = Round.objects.get_or_create(pk=_ONLY, defaults={"due_at": now})
    interval = timedelta(seconds=settings_rows.DIAGNOSIS_INTERVAL_SECONDS.read())
    # None is due later than an interval from now, unless the clock was set back since.
    time_has_come = Q(due_at__lte=now) | Q(due_at__gt=now + interval)
    following = row.due_at + interval if row.due_at <= now < row.due_at + interval else now + interval
    return bool(Round.objects.filter(time_has_come, pk=_ONLY, due_at=row.due_at).update(due_at=following))


def held(at: datetime) -> Round | None:
    """The row, held until the transaction ends; None where a round that was begun later is stored already."""
    row = Round.objects.select_for_update().filter(pk=_ONLY).first()
    return None if row is None or (row.looked_at is not None and _is_later(row.looked_at, at)) else row


def _is_later(looked_at: datetime, at: datetime) -> bool:
    """Much later was a clock that is set back since, which must not keep all rounds from being stored."""
    interval = timedelta(seconds=settings_rows.DIAGNOSIS_INTERVAL_SECONDS.read())
    return at <= looked_at <= at + 3 * interval


def ended(row: Round, at: datetime, took_ms: int) -> None:
    row.looked_at, row.took_ms = at, took_ms
    row.save(update_fields=["looked_at", "took_ms"])


def last() -> Round | None:
    return Round.objects.filter(pk=_ONLY).first()
