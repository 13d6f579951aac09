"""Kind `heartbeat`: a dead man's switch. A service elsewhere is told by the clock that all is well, and calls somebody
when it hears nothing: that of what watches, nobody watches.

It is told while the database answers, rules are evaluated in time and messages leave (services/beats.py says so).
Healthchecks, Dead Man's Snitch, Better Stack and Opsgenie's heartbeats take such a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import Channel, Request, Secret, Target, json_request
from controlplane.alerts.receivers.message import Message
from controlplane.core import fields as f
from wire.canonical import Document


class HeartbeatSettings(f.Fields):
    """The URL is asked for, or posted to, every `interval_seconds`."""

    method: Literal["POST", "GET"] = "POST"
    interval_seconds: Annotated[int, Field(ge=10, le=3600)] = 60


class Heartbeat(Channel):
    kind = ReceiverKind.HEARTBEAT
    settings = HeartbeatSettings
    secret = Secret("URL that is told that all is well", is_url=True)
    takes_incidents = False
    by_the_clock = True

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        """A test is a heartbeat like any other: the service knows no tests."""
        return self.tick((), target, now)

    def every_seconds(self, settings: Document) -> int:
        every: int = settings["interval_seconds"]
        return every

    def tick(self, firing: Sequence[Message], target: Target, now: datetime) -> Sequence[Request]:
        if target.settings["method"] == "GET":
            return [Request(target.secret, b"", method="GET")]
        return [json_request(target.secret, {"receiver": target.name, "at": f.iso(now), "status": "alive"})]
