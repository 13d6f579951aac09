"""Alerts of events whose end no event tells: an agent that was restarted does not know what it said before."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max, Q

from controlplane.alerts import models as rows
from controlplane.alerts.health import CAUSES, QUIET_ALERTS
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.alerts import resolve_alert
from controlplane.fleet.health import failed_probes
from controlplane.fleet.models import Engine, Gpu, Node

# A report may have been made before the event and come after it; by then several newer ones have come.
SETTLE = timedelta(seconds=60)
_REPORTED_ALERTS = frozenset(cause.alertname for cause in CAUSES.values() if cause.reported) - QUIET_ALERTS


class _Firing(NamedTuple):
    """`last`: when the last event of the alert came."""

    alert_id: int
    labels: dict[str, str]
    last: datetime


def resolve_reported_well(now: datetime) -> int:
    """End what the node's reports, since its last event, say is well again; answers how many."""
    firing = _firing(Q(labels__alertname__in=list(_REPORTED_ALERTS)))
    well = [one for one in firing if _reported_well(one.labels, one.last + SETTLE)]
    return sum(_resolve(one, now, "its node reports it well again") for one in well)


def resolve_quiet(now: datetime, quiet_seconds: int) -> int:
    """End the warnings of what nothing reports on, which have not come for so long; answers how many."""
    since = now - timedelta(seconds=quiet_seconds)
    warnings = _firing(Q(labels__alertname__in=list(QUIET_ALERTS), severity=rows.Severity.WARNING))
    quiet = [one for one in warnings if one.last < since]
    return sum(_resolve(one, now, f"not seen again since {one.last:%Y-%m-%d %H:%M:%S} UTC") for one in quiet)


def _firing(wanted: Q) -> list[_Firing]:
    alerts = rows.Alert.objects.filter(wanted, state=rows.IncidentState.FIRING, source=rows.AlertSource.EVENT)
    told = alerts.annotate(last=Max("events__received_at")).filter(last__isnull=False).order_by("pk")
    return [_Firing(*row) for row in told.values_list("pk", "labels", "last")]


def _reported_well(labels: dict[str, str], since: datetime) -> bool:
    node = labels["node"]
    if engine := labels.get("engine"):
        up = Engine.objects.filter(name=engine, node__name=node, state="up", reported_at__gt=since)
        return any(_is_well(row, labels["alertname"]) for row in up)
    if gpu := labels.get("gpu"):
        return Gpu.objects.filter(node__name=node, uuid=gpu, state="ok", reported_at__gt=since).exists()
    nodes = Node.objects.filter(name=node, gpu_problems=[], reported_at__gt=since)
    return nodes.exclude(gpu_source="none").exists()


def _is_well(engine: Engine, alertname: str) -> bool:
    """Whether an engine that is up is without what the incident tells of."""
    if alertname == CAUSES["engine_hung"].alertname:
        # An agent of the version before says so by the error alone.
        return engine.condition != "hung" and not engine.error
    if alertname == CAUSES["engine_paused"].alertname:
        return engine.condition != "paused"
    if alertname == CAUSES["engine_probe_failed"].alertname:
        return bool(engine.facts.get("probes")) and not failed_probes(engine)
    return True


def _resolve(firing: _Firing, now: datetime, text: str) -> bool:
    """Unless its event has come again meanwhile."""
    with transaction.atomic():
        lock_alerts()
        alert = rows.Alert.objects.filter(pk=firing.alert_id).first()
        if alert is None or alert.events.filter(received_at__gt=firing.last).exists():
            return False
        return resolve_alert(alert, now, text)
