"""Events of nodes: each counts once, and opens, feeds or ends its alert in the transaction that stores it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from controlplane import settings_rows
from controlplane.alerts import health, runbooks
from controlplane.alerts import models as rows
from controlplane.alerts.health import Verdict, judge
from controlplane.alerts.services import alerts, incidents, notifying, policy
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.alerts import NewAlert
from controlplane.alerts.services.cordons import cordon_for
from controlplane.configs.lock import lock_configuration
from controlplane.core import fields as f
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.reported import storable_text
from controlplane.fleet.models import Act, ActState
from controlplane.fleet.services import NODES
from wire.canonical import Document
from wire.messages import Event

log = logging.getLogger(__name__)
# A part that fails again and again would make its time line unreadable; its further events are kept all the same.
ENTRIES_OF_EVENTS_MAX = 100
# After these an engine runs: by what an act did, and as its agent tells.
_STARTING = {"start", "restart"}
_RUNS_AGAIN = ("engine_up", "engine_restarted")


def take_events(node: str, events: Sequence[Event], now: datetime) -> None:
    """Store a node's events and act on those that are new, all or nothing. Raises NotFound: there is no such node."""
    fresh = _unknown(node, [_as_asked(_row(event, now, node=node)) for event in events])
    if not fresh:
        return
    may_cordon = any(judge(row).kind == "cordon" for row in fresh) and policy.get().enabled
    with transaction.atomic():
        # Before any row, as every write of the configuration has it; whoever writes none need not wait for those.
        if may_cordon:
            lock_configuration()
        # One body of a node at a time, so that none acts on half of what another stores.
        NODES.lock(node)
        lock_alerts()
        fresh = sorted(_unknown(node, fresh), key=_believed_at)
        rows.NodeEvent.objects.bulk_create(fresh)
        opened = set()
        for row in fresh:
            opened |= _act(row, now, locked=may_cordon)
        rows.NodeEvent.objects.bulk_update([row for row in fresh if row.incident_id], ["incident", "alert"])
        # Once for all of them: what one of them caused is told with it, and by it alone.
        notifying.look_now(opened, now)


def take_gateway_events(gateway: str, events: Sequence[Event], now: datetime) -> None:
    """Store what a gateway tells, such as what its clients report, all or nothing. None of it makes an incident."""
    told = [_row(event, now, gateway=gateway) for event in events]
    with transaction.atomic():
        rows.NodeEvent.objects.bulk_create(told, ignore_conflicts=True)


def _row(event: Event, now: datetime, *, node: str = "", gateway: str = "") -> rows.NodeEvent:
    return rows.NodeEvent(
        node=node,
        gateway=gateway,
        event_id=storable_text(event.id),
        # The wire allows later ones, but no row can hold them.
        at=f.from_epoch_ms(min(event.at, f.EPOCH_MS_MAX)),
        received_at=now,
        kind=event.kind,
        subject=storable_text(event.subject),
        severity=event.severity,
        detail=storable_text(event.detail),
    )


def _as_asked(event: rows.NodeEvent) -> rows.NodeEvent:
    """An engine that was stopped by an act, and has not run since, is down as it should be.

    Its agent says so too, unless it was itself started anew meanwhile.
    """
    if event.kind != "engine_down" or event.severity == "info":
        return event
    acts = Act.objects.filter(engine__name=event.subject, node__name=event.node, action__in=_STARTING | {"stop"})
    last = acts.filter(state__in=(ActState.RUNNING, ActState.DONE)).order_by("-pk").first()
    if last is None or last.action != "stop":
        return event
    told = rows.NodeEvent.objects.filter(node=event.node, subject=event.subject, kind__in=_RUNS_AGAIN)
    if not told.filter(at__gt=last.state_at).exists():
        event.severity = "info"
    return event


def _unknown(node: str, events: Sequence[rows.NodeEvent]) -> list[rows.NodeEvent]:
    """Those that are not stored yet, each id once."""
    by_id = {event.event_id: event for event in reversed(events)}
    stored = rows.NodeEvent.objects.filter(node=node, event_id__in=by_id)
    known = set(stored.values_list("event_id", flat=True))
    return [event for event in events if event.event_id not in known and by_id[event.event_id] is event]


def _believed_at(event: rows.NodeEvent) -> datetime:
    oldest = timedelta(days=settings_rows.EVENTS_KEEP_DAYS.read())
    return health.believed_at(event.at, event.received_at, oldest)


def _act(event: rows.NodeEvent, now: datetime, *, locked: bool) -> set[int]:
    """Answers which incidents are to be looked at."""
    verdict, opened = judge(event), set[int]()
    if verdict.labels is not None:
        opened = _open(event, verdict, verdict.labels, now, locked=locked)
    for labels in verdict.resolves:
        _resolve(event, labels)
    return opened


def _open(event: rows.NodeEvent, verdict: Verdict, labels: dict[str, str], now: datetime, *, locked: bool) -> set[int]:
    at = _believed_at(event)
    if _is_over(event, at):
        log.info("event %s of %s came late: its subject has recovered since", event.kind, event.node)
        return set()
    alike = rows.Alert.objects.filter(fingerprint=incidents.fingerprint(labels)).select_related("incident")
    last = alike.order_by("-pk").first()
    if last is not None and last.resolved_at is not None and at < last.resolved_at - health.CLOCK_SKEW:
        log.info("event %s of %s came late: incident %d has ended since", event.kind, event.node, last.incident_id)
        event.alert, event.incident = last, last.incident
        return set()
    told = NewAlert(
        labels=labels,
        source="event",
        severity=event.severity,
        title=verdict.title,
        annotations={
            "summary": verdict.title,
            "description": event.detail,
            "verdict": verdict.reason,
            **runbooks.of_event(labels["alertname"], event.detail),
        },
        at=at,
        text=event.detail,
    )
    ((alert, new),) = alerts.open_alerts([told])
    incident = alert.incident
    event.alert, event.incident = alert, incident
    if not new and incident.entries.filter(kind="event").count() < ENTRIES_OF_EVENTS_MAX:
        incidents.note(incident, "event", event.detail, at, {"event": event.event_id})
    if verdict.kind == "cordon":
        # A text that is all white space is no reason.
        cordon_for(incident, event.node, event.detail.strip() or verdict.title, now, locked=locked)
    return {incident.pk}


def _is_over(event: rows.NodeEvent, at: datetime) -> bool:
    """Whether the node told earlier that what it tells of here has ended since."""
    recovery = health.recovery_of(event.kind)
    if recovery is None:
        return False
    told = rows.NodeEvent.objects.filter(node=event.node, kind=recovery, subject=event.subject, pk__lt=event.pk)
    return _any_after(told, at)


def _any_after(events: QuerySet[rows.NodeEvent], at: datetime) -> bool:
    """Whether one of them happened later. They need not have come in the order in which they happened."""
    since = events.filter(received_at__gt=at).order_by("-at")
    return any(_believed_at(event) > at for event in since.iterator())


def _resolve(event: rows.NodeEvent, labels: dict[str, str]) -> None:
    alert = alerts.firing_with(labels)
    if alert is None:
        return
    at = _believed_at(event)
    if _any_after(alert.events.all(), at):
        log.info("event %s of %s came late: incident %d has a newer one", event.kind, event.node, alert.incident_id)
        return
    event.alert, event.incident = alert, alert.incident
    alerts.resolve_alert(alert, at, event.detail)


def page(
    *, node: str = "", gateway: str = "", kind: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[rows.NodeEvent], int | None]:
    """Events, the last received first; `after` is the last of the page before."""
    wanted = {"node": node, "gateway": gateway, "kind": kind}
    events = rows.NodeEvent.objects.filter(**{name: value for name, value in wanted.items() if value})
    if after:
        events = events.filter(pk__lt=after)
    return page_of(events.order_by("-pk"), limit, lambda event: event.pk)


def describe(event: rows.NodeEvent) -> Document:
    return {
        "id": event.event_id,
        "node": event.node or None,
        "gateway": event.gateway or None,
        "at": f.iso(event.at),
        "received_at": f.iso(event.received_at),
        "kind": event.kind,
        "subject": event.subject,
        "severity": event.severity,
        "detail": event.detail,
        "incident": event.incident_id,
    }


def prune(before: datetime) -> int:
    """Forget events received before then, but those of an incident that still fires; answers how many."""
    old = rows.NodeEvent.objects.filter(received_at__lt=before)
    return old.exclude(incident__state=rows.IncidentState.FIRING).delete()[0]
