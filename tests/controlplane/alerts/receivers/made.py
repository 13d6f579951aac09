"""Messages and targets of the tests of kinds, without rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.alerts.receivers.contract import Request, Target
from controlplane.alerts.receivers.message import Alert, Message, common
from controlplane.alerts.receivers.registry import CHANNELS

NOW = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
STARTED = datetime(2026, 3, 1, 12, 0, 1, 500_000, UTC)
ENDED = datetime(2026, 3, 1, 13, tzinfo=UTC)
LABELS = {"alertname": "GpuXid", "node": "n1", "pool": "chat", "severity": "critical"}
ANNOTATIONS = {"summary": "XID 79 on GPU 3", "description": "fell off the bus", "runbook_url": "https://hw.example/r"}
URL = "https://hw.example/incidents/7"


def alert(ended_at: datetime | None = None, labels: dict[str, str] | None = None, **annotations: str) -> Alert:
    return Alert(labels or LABELS, {**ANNOTATIONS, **annotations}, "ab" * 32, STARTED, ended_at, URL)


def message(occasion: str = "first", *alerts: Alert, **changes: Any) -> Message:
    """One of an incident of one alert, or of these; over where the occasion is that."""
    over = occasion == "resolved"
    shown = alerts or (alert(ENDED if over else None),)
    fields: dict[str, Any] = {
        "delivery": "d-1",
        "key": "headworks-0123",
        "receiver": "oncall",
        "occasion": occasion,
        "status": "resolved" if over else "firing",
        "severity": "critical",
        "title": "XID 79 on GPU 3",
        "group_labels": common([each.labels for each in shown]),
        "common_labels": common([each.labels for each in shown]),
        "common_annotations": common([each.annotations for each in shown]),
        "alerts": shown,
        "started_at": STARTED,
        "ended_at": ENDED if over else None,
        "url": URL,
        "external_url": "https://hw.example",
    }
    return Message(**{**fields, **changes})


def target(kind: str, url: str = "", secret: str = "", **settings: Any) -> Target:
    channel = CHANNELS[kind]
    return Target("oncall", url or channel.url, channel.settings(**settings).model_dump(), secret)


def requests(kind: str, what: Message, where: Target) -> list[Request]:
    plan = CHANNELS[kind].plan(what, where, NOW)
    assert isinstance(plan, list)
    return plan
