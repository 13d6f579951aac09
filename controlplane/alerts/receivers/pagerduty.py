"""Kind `pagerduty`: an incident is one alert of PagerDuty's by its dedup key: triggered, acknowledged, resolved.

Source: developer.pagerduty.com, Events API v2, "Send an Alert Event". An account in the EU has its service region's
URL, https://events.eu.pagerduty.com.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from controlplane.alerts.delivery_plan import Outcome
from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import (
    Answer,
    Channel,
    Request,
    Secret,
    Target,
    cut,
    fitting,
    invalid_where,
)
from controlplane.alerts.receivers.message import Labels, Message
from controlplane.core.fields import Like, iso

_SUMMARY_CHARACTERS = 1024
_EVENT_BYTES = 512_000


class Room(NamedTuple):
    """How much of a message an event's details hold: alerts, and characters of each text and label."""

    alerts: int = 20
    characters: int = 1000


_ROOMS = (Room(), Room(5, 200), Room(0, 100))
_SEVERITIES = {"critical": "critical", "warning": "warning", "info": "info"}
_ACTIONS = {"resolved": "resolve", "acknowledged": "acknowledge"}
_KEY = Like(
    Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z]{32}$(?!\n)")],
    "give the 32 letters and digits of the integration key of a service's Events API v2 integration",
)


class PagerDuty(Channel):
    kind = ReceiverKind.PAGERDUTY
    secret = Secret("integration key (routing key)", like=_KEY)
    url = "https://events.pagerduty.com"
    takes_acknowledged = True

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        events = (event(message, target.secret, room) for room in _ROOMS)
        return [fitting(f"{target.url.rstrip('/')}/v2/enqueue", events, _EVENT_BYTES)]

    def judge(self, answer: Answer, now: datetime) -> Outcome:
        """400 says that the event is malformed, and would be so again; but of a wrong key, which somebody can mend."""
        outcome = super().judge(answer, now)
        return outcome if "routing" in answer.body.lower() else invalid_where(outcome, 400)


def event(message: Message, routing_key: str, room: Room) -> dict[str, Any]:
    action = _ACTIONS.get(message.occasion, "trigger")
    document: dict[str, Any] = {"routing_key": routing_key, "event_action": action, "dedup_key": message.key}
    if action != "trigger":
        return document
    labels = message.common_labels
    document["payload"] = {
        "summary": cut(message.title, _SUMMARY_CHARACTERS),
        "source": labels.get("node") or labels.get("pool") or labels.get("tenant") or "headworks",
        "severity": _SEVERITIES.get(message.severity, "error"),
        "timestamp": iso(message.started_at),
        "component": labels.get("engine") or labels.get("gpu") or labels.get("pool") or "",
        "group": labels.get("pool", ""),
        "class": labels.get("alertname", ""),
        "custom_details": _details(message, room),
    }
    document["client"] = "Headworks"
    if message.url:
        document["client_url"] = message.url
    if message.runbook:
        document["links"] = [{"href": message.runbook, "text": "Runbook"}]
    return document


def _details(message: Message, room: Room) -> dict[str, Any]:
    def short(texts: Labels) -> dict[str, str]:
        return {name: cut(text, room.characters) for name, text in texts.items()}

    shown = message.alerts[: room.alerts]
    return {
        "labels": short(message.common_labels),
        "annotations": short(message.common_annotations),
        "alerts": [
            {"status": each.status, "summary": cut(each.summary, room.characters), "labels": short(each.labels)}
            for each in shown
        ],
        "alerts_more": message.alerts_more + len(message.alerts) - len(shown),
    }
