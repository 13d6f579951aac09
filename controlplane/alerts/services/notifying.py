"""Looking at incidents: who is told what now. The end of the pipeline: send, record.

An incident says itself when it is looked at (`notify_at`). Who looks claims it by a conditional update, and writes the
messages and what was told in the same transaction: of several workers one does it, and of one that is killed nothing
stays, so that another does it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from django.db import InterfaceError, OperationalError, transaction

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline import stages
from controlplane.alerts.pipeline.dedup import Reason, Told
from controlplane.alerts.pipeline.grouping import matched_labels
from controlplane.alerts.pipeline.stages import Firing, Look, Standing
from controlplane.alerts.services import deliveries, incidents
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.standing import standing, timing_in
from controlplane.alerts.waking import NOTIFY, wake_on_commit

log = logging.getLogger(__name__)

# Looked at by what was laid down and fired at their beginning; then that is read anew.
ROUND_INCIDENTS = 200
_FIRING, _RESOLVED = rows.IncidentState.FIRING, rows.IncidentState.RESOLVED


def look_at_due(clock: Callable[[], datetime]) -> int:
    """Look at every incident whose time has come; how many messages were written.

    One that cannot be looked at keeps no other waiting; it comes again with the next sweep.
    """
    written, failed = 0, set[int]()
    while due := _due(now := clock(), failed):
        laid_down = standing(now)
        for pk, notify_at in due:
            try:
                written += _claim_and_look(pk, notify_at, laid_down, now)
            except (OperationalError, InterfaceError):
                # Of the database, and of no incident.
                raise
            except Exception:
                log.exception("incident %d cannot be looked at", pk)
                failed.add(pk)
    return written


def _due(now: datetime, without: Collection[int] = ()) -> list[tuple[int, datetime]]:
    due = rows.Incident.objects.filter(notify_at__lte=now).exclude(pk__in=without).order_by("notify_at", "pk")
    return [(pk, at) for pk, at in due.values_list("pk", "notify_at")[:ROUND_INCIDENTS] if at is not None]


def _claim_and_look(pk: int, notify_at: datetime, laid_down: Standing, now: datetime) -> int:
    with transaction.atomic():
        # The row is held from here on, so that no alert joins it meanwhile.
        if not rows.Incident.objects.filter(pk=pk, notify_at=notify_at).update(notify_at=None):
            return 0
        return _look(rows.Incident.objects.get(pk=pk), laid_down, now)


def look_now(incident_ids: Iterable[int], now: datetime) -> None:
    """Look at these in the caller's transaction, which holds their rows: their messages are there with what they tell
    of, or neither is."""
    found = rows.Incident.objects.filter(pk__in=set(incident_ids)).order_by("pk")
    if not found:
        return
    laid_down = standing(now)
    for incident in found:
        _look(incident, laid_down, now)


def wake(now: datetime, **which: object) -> None:
    """Have all that fires looked at anew: what people laid down has changed, or what kept something mute is over."""
    lock_alerts()
    firing = rows.Incident.objects.filter(state=_FIRING, **which)
    if firing.exclude(notify_at__lte=now).update(notify_at=now):
        wake_on_commit(NOTIFY)


def _look(incident: rows.Incident, laid_down: Standing, now: datetime) -> int:
    alerts = list(incident.alerts.filter(state=_FIRING).order_by("pk"))
    told = {each.receiver_id: each for each in incident.told.all()}
    look = stages.judged(
        Look(
            now=now,
            standing=laid_down,
            timing=timing_in(laid_down.routes, incident.route),
            firing=[_firing(alert) for alert in alerts],
            over=_over(incident, told.values(), alerts),
            told={key: _told(each) for key, each in told.items()},
            acknowledged=incident.acknowledged_at is not None,
            snoozed_until=incident.snoozed_until,
        )
    )
    _note_muted(incident, alerts, look)
    messages = stages.messages(look)
    there = {one.pk: one for one in deliveries.held(messages)}
    # One that was deleted since is neither written to nor noted.
    sent = {key: occasion for key, occasion in messages.items() if key in there}
    written = _send(incident, look, sent, there)
    _record(incident, look, sent)
    return written


def _firing(alert: rows.Alert) -> Firing:
    return Firing(alert.pk, matched_labels(alert.labels, alert.severity), rows.Severity(alert.severity).rank)


def _told(row: rows.LastTold) -> Told:
    return Told(row.status == _RESOLVED, frozenset(row.alerts), rows.Severity(row.severity).rank, row.at)


def _over(incident: rows.Incident, told: Iterable[rows.LastTold], alerts: list[rows.Alert]) -> frozenset[int]:
    ended = {key for each in told for key in each.alerts} - {alert.pk for alert in alerts}
    if not ended:
        return frozenset()
    mute = incident.alerts.filter(state=_RESOLVED).exclude(muted_by={}).values_list("pk", flat=True)
    return frozenset(ended.difference(mute))


def _send(incident: rows.Incident, look: Look, sent: Mapping[int, Reason], there: Mapping[int, rows.Receiver]) -> int:
    """Write the messages. Who is told the same for the same reason is written to together."""
    together: defaultdict[tuple[Reason, tuple[int, ...]], list[int]] = defaultdict(list)
    for key, occasion in sent.items():
        together[occasion, tuple(alert.key for alert in look.heard[key])].append(key)
    written = 0
    for (occasion, heard), keys in together.items():
        receivers = [there[key] for key in keys]
        digest = hashlib.sha256(repr(heard).encode()).hexdigest()
        written += deliveries.enqueue(incident, receivers, occasion=occasion, status=incident.state, digest=digest)
    return written


def _record(incident: rows.Incident, look: Look, sent: Mapping[int, Reason]) -> None:
    """What was told, who is mute, and when to look again."""
    rows.LastTold.objects.bulk_create(
        [
            rows.LastTold(
                incident=incident,
                receiver_id=key,
                status=incident.state,
                alerts=[alert.key for alert in look.heard[key]],
                severity=incident.severity if occasion is Reason.RESOLVED else _gravest(look.heard[key]),
                at=look.now,
            )
            for key, occasion in sent.items()
        ],
        update_conflicts=True,
        unique_fields=["incident", "receiver"],
        update_fields=["status", "alerts", "severity", "at"],
    )
    incident.notify_at = stages.look_again(look)
    incident.told_at = look.now if sent else incident.told_at
    incident.save(update_fields=["notify_at", "told_at"])


def _gravest(alerts: Iterable[Firing]) -> str:
    return list(rows.Severity)[max(alert.rank for alert in alerts)]


def _note_muted(incident: rows.Incident, alerts: list[rows.Alert], look: Look) -> None:
    """Keep why each alert is mute, and say on the time line when another reason makes all of them so."""
    changed: defaultdict[str, list[int]] = defaultdict(list)
    values = {}
    for alert in alerts:
        muted = dict(look.muted.get(alert.pk, {}))
        if muted != alert.muted_by:
            values[repr(muted)] = muted
            changed[repr(muted)].append(alert.pk)
    for text, keys in changed.items():
        rows.Alert.objects.filter(pk__in=keys).update(muted_by=values[text])
    if changed and alerts and len(look.muted) == len(alerts):
        reasons = sorted(
            {f"{kind} {name}" for muted in look.muted.values() for kind, names in muted.items() for name in names}
        )
        incidents.note(incident, "muted", f"nobody is told: {', '.join(reasons)}", look.now, {"muted_by": reasons})
