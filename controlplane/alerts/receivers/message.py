"""What a message says of an incident, before a kind gives it its form. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.alerts.runbooks import address
from wire.canonical import content_hash

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Alert:
    """One alert as the message shows it. `ended_at` is None while it fires; `url` is where people read on."""

    labels: Labels
    annotations: Labels
    fingerprint: str
    started_at: datetime
    ended_at: datetime | None
    url: str

    @property
    def status(self) -> str:
        return "firing" if self.ended_at is None else "resolved"

    @property
    def summary(self) -> str:
        return self.annotations.get("summary") or self.labels.get("alertname", "")


@dataclass(frozen=True)
class Message:
    """One message about an incident to one receiver.

    `delivery` is the same with every attempt, `key` with every message about the incident. `alerts` are the firing ones
    first, `alerts_more` the number of those that are left out. `common_labels` and `common_annotations` are of all.
    """

    delivery: str
    key: str
    receiver: str
    occasion: str
    status: str
    severity: str
    title: str
    group_labels: Labels
    common_labels: Labels
    common_annotations: Labels
    alerts: tuple[Alert, ...]
    started_at: datetime
    ended_at: datetime | None = None
    alerts_more: int = 0
    route: str = ""
    url: str = ""
    external_url: str = ""
    acknowledged_by: str = ""

    @property
    def headline(self) -> str:
        """What has happened, in one line, for whoever reads it on a telephone."""
        word = {"acknowledged": "ACKNOWLEDGED", "resolved": "RESOLVED"}.get(self.occasion)
        return f"[{word or self.severity.upper()}] {self.title}"

    @property
    def runbook(self) -> str:
        """The URL of the runbook that its alerts have in common; empty where there is none."""
        return address(self.common_annotations.get("runbook_url", ""), self.external_url)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What its alerts have in common, by name, without what the headline says already."""
        return [(name, value) for name, value in sorted(self.common_labels.items()) if name != "severity"]


def common(maps: Sequence[Labels]) -> dict[str, str]:
    """The entries that all of these have."""
    if not maps:
        return {}
    shared = set(maps[0].items()).intersection(*(each.items() for each in maps[1:]))
    return dict(sorted(shared))


def key_of(fingerprint: str, incident_id: int, started_at: datetime) -> str:
    """One text for all messages about an incident: what other services know it by.

    Of two control planes that share such a service, none has the other's.
    """
    made_of = {"fingerprint": fingerprint, "incident": incident_id, "started_at": started_at.isoformat()}
    return f"headworks-{content_hash(made_of)[:40]}"
