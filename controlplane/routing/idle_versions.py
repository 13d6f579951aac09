"""Passive versions of models that nobody asks for any more are retired, as soon as that is known for long enough.

Gateways tell every minute what each pool was asked for. While one of them is not heard, or nobody looked, it is not
known whether there were requests: the time without any begins anew then.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db.models import Max

from controlplane import settings_rows
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.fields import epoch_ms, from_epoch_ms
from controlplane.core.models import Target, TargetKind
from controlplane.fleet.models import ModelVersion
from controlplane.fleet.services import versions
from controlplane.telemetry.decisions.models import MinuteSketch

log = logging.getLogger(__name__)
LOOK_EVERY = timedelta(hours=1)
# Of a look that was missed it is not known what came meanwhile.
_LOOKS_APART_MAX = 3 * LOOK_EVERY
# A gateway tells again what did not arrive; so late a minute may come.
_TOLD_WITHIN = timedelta(days=1)


def look(now: datetime) -> int:
    """Look at every version that serves, and retire those that are due; answers how many were retired."""
    idle_days = settings_rows.VERSION_IDLE_DAYS.read()
    known = _gateways_are_heard(now)
    retired = 0
    # Of what has no pool of its own, such as an adapter, nobody tells requests.
    serving = ModelVersion.objects.filter(retired_at=None, model__pools__isnull=False).distinct()
    for row in serving.select_related("model").order_by("pk"):
        idle = _idle(row, now, known)
        if idle_days and idle is not None and idle >= timedelta(days=idle_days):
            retired += _retire(row, idle_days)
    return retired


def _gateways_are_heard(now: datetime) -> bool:
    """Whether each gateway that is enrolled was heard of lately; where there is none, nobody tells of requests."""
    silent = now - timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    seen = Target.objects.filter(kind=TargetKind.GATEWAY, revoked_at=None).values_list("last_seen_at", flat=True)
    return bool(seen) and all(at is not None and at >= silent for at in seen)


def _idle(row: ModelVersion, now: datetime, known: bool) -> timedelta | None:
    """For how long it is known that nobody asked for it; None where that is not known, or another worker looked."""
    used_at = _used_after(row, now)
    in_time = row.looked_at is not None and now - row.looked_at <= _LOOKS_APART_MAX
    idle_since = (row.idle_since or now) if known else None
    if used_at is not None or not in_time:
        idle_since = now if known else None
    mine = ModelVersion.objects.filter(pk=row.pk, looked_at=row.looked_at)
    if not mine.update(looked_at=now, idle_since=idle_since, used_at=used_at or row.used_at) or idle_since is None:
        return None
    return now - idle_since


def _used_after(row: ModelVersion, now: datetime) -> datetime | None:
    """When one of its pools was last asked for, by what gateways have told since the last look."""
    pools = list(row.model.pools.values_list("name", flat=True))
    since = row.looked_at or now - _TOLD_WITHIN
    told = MinuteSketch.objects.filter(
        pool__in=pools, minute_ms__gte=epoch_ms(since - _TOLD_WITHIN), received_ms__gte=epoch_ms(since)
    )
    last_ms = told.aggregate(last=Max("minute_ms"))["last"]
    return None if last_ms is None else from_epoch_ms(last_ms)


def _retire(row: ModelVersion, idle_days: int) -> bool:
    try:
        versions.refuse_retirement(row)
        with unit_of_work(SYSTEM, f"nobody asked for it for {idle_days} days") as unit:
            versions.retire(unit, row.pk)
    except Refused as refused:
        # What keeps it may go; it is looked at again.
        log.debug("%s", refused.detail)
        return False
    for warning in unit.warnings:
        log.warning("version %s of %s: %s", row.version, row.family, warning.message)
    log.info("version %s of %s is retired: nobody asked for it for %d days", row.version, row.family, idle_days)
    return True
