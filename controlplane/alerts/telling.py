"""From an incident's rows to the message that says it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from django.db.models import Case, QuerySet, Value, When

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts import runbooks
from controlplane.alerts.receivers.message import Alert, Labels, Message, common, key_of
from controlplane.alerts.services.incidents import fingerprint

_FIRING, _RESOLVED = rows.IncidentState.FIRING, rows.IncidentState.RESOLVED
TEST_LABELS: Mapping[str, str] = {"alertname": "HeadworksTest", "severity": "info"}
# What all of a storm's alerts have in common is read off so many.
_COMMON_OF = 5000


class Shown(NamedTuple):
    """The alerts that a message shows, how many it leaves out, and what all of them have in common."""

    alerts: tuple[Alert, ...]
    more: int
    labels: Labels
    annotations: Labels


def message_of(row: rows.Delivery, alerts_max: int | None = None) -> Message:
    """The incident as a message of this row's status shows it, whatever has become of it since."""
    return _message(row.incident, row.receiver.name, str(row.pk), row.occasion, row.status, alerts_max)


def firing_messages(receiver: rows.Receiver, alerts_max: int | None = None) -> list[Message]:
    """Each incident that the receiver was told of and that still fires, as it is now: what is told by the clock."""
    told = rows.Delivery.objects.filter(receiver=receiver, state=rows.DeliveryState.DELIVERED, status=_FIRING)
    firing = rows.Incident.objects.filter(pk__in=told.values("incident"), state=_FIRING).order_by("pk")
    return [_message(each, receiver.name, "", "repeat", _FIRING, alerts_max) for each in firing]


def test_message(receiver: str, delivery: str, now: datetime) -> Message:
    """One that says that it is a test, and asks for nothing."""
    text = f"A test of the receiver {receiver}; nothing has happened."
    alert = Alert(TEST_LABELS, {"summary": text}, fingerprint(TEST_LABELS), now, None, public_url())
    return Message(
        delivery=delivery,
        key=key_of(delivery, 0, now),
        receiver=receiver,
        occasion=rows.Occasion.FIRST,
        status=_FIRING,
        severity=rows.Severity.INFO,
        title=text,
        group_labels=TEST_LABELS,
        common_labels=TEST_LABELS,
        common_annotations=alert.annotations,
        alerts=(alert,),
        started_at=now,
        url=public_url(),
        external_url=public_url(),
    )


def public_url() -> str:
    return settings_rows.PUBLIC_URL.read().rstrip("/")


def _message(
    incident: rows.Incident, receiver: str, delivery: str, occasion: str, status: str, alerts_max: int | None
) -> Message:
    url = f"{public_url()}/incidents/{incident.pk}" if public_url() else ""
    shown = _shown(incident, status, url, alerts_max or settings_rows.MESSAGE_ALERTS_MAX.read())
    return Message(
        delivery=delivery,
        key=key_of(incident.fingerprint, incident.pk, incident.started_at),
        receiver=receiver,
        occasion=occasion,
        status=status,
        severity=incident.severity,
        title=incident.title,
        group_labels=incident.labels or shown.labels,
        common_labels=shown.labels,
        common_annotations=shown.annotations,
        alerts=shown.alerts,
        started_at=incident.started_at,
        ended_at=incident.resolved_at if status == _RESOLVED else None,
        alerts_more=shown.more,
        route=incident.route,
        url=url,
        external_url=public_url(),
        acknowledged_by=incident.acknowledged_by,
    )


def _shown(incident: rows.Incident, status: str, url: str, most: int) -> Shown:
    told = _told(incident)
    found = list(told[:most])
    if not found:
        # Of a version before there were alerts.
        whole = _alert(incident, incident, status, url)
        return Shown((whole,), 0, whole.labels, whole.annotations)
    # A message that it fires was written while one did: where none does any more, all are shown as they were.
    as_they_were = status == _FIRING and found[0].state == _RESOLVED
    alerts = tuple(
        _alert(each, incident, each.state if status == _FIRING and not as_they_were else status, url) for each in found
    )
    if len(found) < most:
        return Shown(alerts, 0, common([each.labels for each in alerts]), common([each.annotations for each in alerts]))
    every = list(told.values_list("labels", "severity", "annotations", "title")[:_COMMON_OF])
    return Shown(
        alerts,
        max(told.count() - len(alerts), 0),
        common([_labels(labels, severity) for labels, severity, _, _ in every]),
        common([_annotations(annotations, title) for *_, annotations, title in every]),
    )


def _told(incident: rows.Incident) -> QuerySet[rows.Alert]:
    """Those that people are told of, the firing ones first, then the newest; all where all are muted."""
    firing_first = Case(When(state=_FIRING, then=Value(0)), default=Value(1))
    alerts = incident.alerts.order_by(firing_first, "-started_at", "-pk")
    heard = alerts.filter(muted_by={})
    return heard if heard.exists() else alerts


def _alert(row: rows.Alert | rows.Incident, incident: rows.Incident, status: str, url: str) -> Alert:
    return Alert(
        labels=_labels(row.labels, row.severity),
        annotations=_annotations(row.annotations, row.title),
        fingerprint=row.fingerprint,
        started_at=row.started_at,
        ended_at=(row.resolved_at or incident.resolved_at) if status == _RESOLVED else None,
        url=url,
    )


def _labels(labels: Mapping[str, str], severity: str) -> dict[str, str]:
    return {**labels, "severity": severity}


def _annotations(annotations: Mapping[str, str], title: str) -> dict[str, str]:
    """With the title as their summary; a runbook's path becomes a URL where the control plane has one."""
    full = {"summary": title, **annotations}
    if leads_to := runbooks.address(full.get("runbook_url", ""), public_url()):
        full["runbook_url"] = leads_to
    return full
