"""The last part of every write: what it does to the fleet shows on the incidents that it concerns."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from controlplane.alerts.health import HARDWARE_ALERTS, engine_labels
from controlplane.alerts.models import Incident
from controlplane.alerts.services import alerts, incidents
from controlplane.alerts.services.cordons import CORDONED, UNCORDONED
from controlplane.core.changes import Change, UnitOfWork
from wire.canonical import Document


def follow_fleet(unit: UnitOfWork) -> None:
    """In the write's own transaction: note cordons, and end the incidents of what a person took care of or removed."""
    now = timezone.now()
    for change in unit.changes:
        if change.before is None:
            continue
        if change.noun == "node":
            _follow_node(unit, change, change.before, now)
        elif change.noun == "engine":
            _follow_engine(unit, change, change.before, now)


def _follow_node(unit: UnitOfWork, change: Change, before: Document, now: datetime) -> None:
    if change.after is None:
        text = f"the node was removed by {unit.actor.name}: {unit.reason}"
        # A rule sees by itself when its series is gone.
        alerts.resolve_alerts([alert.pk for alert in alerts.told_of(change.key)], now, text)
    elif before["cordoned"] and not change.after["cordoned"]:
        _uncordoned(unit, change.key, now)
    # A node's own cordon is the policy's, which says more of it than is known here.
    elif not before["cordoned"] and change.after["cordoned"] and unit.actor.kind != "target":
        for incident in incidents.firing_on(change.key):
            _note(unit, incident, change.key, CORDONED, now)


def _uncordoned(unit: UnitOfWork, node: str, now: datetime) -> None:
    """Who lets a node take work again vouches for its hardware; engines that are down stay so."""
    for incident in incidents.firing_on(node):
        _note(unit, incident, node, UNCORDONED, now)
    hardware = [alert.pk for alert in alerts.told_of(node) if alert.labels["alertname"] in HARDWARE_ALERTS]
    alerts.resolve_alerts(hardware, now, f"uncordoned by {unit.actor.name}: {unit.reason}")


def _note(unit: UnitOfWork, incident: Incident, node: str, kind: str, now: datetime) -> None:
    details = {"node": node, "reason": "person", "change_id": str(unit.change_id)}
    incidents.note(incident, kind, f"{kind} by {unit.actor.name}: {unit.reason}", now, details)


def _follow_engine(unit: UnitOfWork, change: Change, before: Document, now: datetime) -> None:
    """No agent looks any more at an engine that was removed, or that another node has now, to say that it is well."""
    node = before["node"]
    if node is None or (change.after is not None and change.after["node"] == node):
        return
    what = "removed" if change.after is None else "moved"
    firing = alerts.firing_of(incidents.fingerprint(labels) for labels in engine_labels(node, change.key))
    text = f"the engine was {what} by {unit.actor.name}: {unit.reason}"
    alerts.resolve_alerts([alert.pk for alert in firing.values()], now, text)
