"""What an event of a node asks for: a cordon, an incident, the end of one, or nothing. Pure: no rows, no clock.

Which XIDs are critical is the agent's table's to say, where a site overrides it; here only the severity counts.
Practice: NVIDIA's XID catalogue for what makes a GPU unusable, NVSentinel for what takes a node out of service (a
fault that the hardware itself reports) and what only calls a person (a GPU that is silent may come back).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

Labels = dict[str, str]
# Clocks of a node and of the control plane may differ by so much.
CLOCK_SKEW = timedelta(seconds=60)
TITLE_CHARACTERS = 200
_NUMBERED = re.compile(r"(?:XID|SXid) (\d+)\b")
_END_OF_HEADLINE = re.compile(r"[:;] ")


@dataclass(frozen=True)
class Cause:
    """What a kind of event tells of. `about`: the label that its subject is; empty: the node as a whole.

    `cordons`: when critical, the node may take no new work, by `rule`. `hardware`: over once a person uncordons the
    node. `reported`: over once the node's reports say that it is well. `quietens`: nothing ever tells of its end, so a
    warning of it is over when it has not come again for long.
    """

    alertname: str
    about: str = ""
    number: str = ""
    cordons: bool = False
    rule: Literal["hardware_fault", "leaving"] = "hardware_fault"
    hardware: bool = True
    reported: bool = True
    quietens: bool = False


CAUSES: Mapping[str, Cause] = {
    "xid": Cause("GpuXid", "gpu", number="xid", cordons=True, quietens=True),
    "sxid": Cause("NvSwitchSxid", "nvswitch", number="sxid", cordons=True, quietens=True),
    "gpu_lost": Cause("GpuLost", "gpu", cordons=True),
    "gpu_unresponsive": Cause("GpuUnresponsive", "gpu"),
    "gpu_error": Cause("GpuError", "gpu"),
    "nvml_failed": Cause("NvmlFailed"),
    "spot_notice": Cause("SpotNotice", cordons=True, rule="leaving", reported=False),
    "engine_down": Cause("EngineDown", "engine", hardware=False),
    "engine_hung": Cause("EngineHung", "engine", hardware=False),
    "engine_paused": Cause("EnginePaused", "engine", hardware=False),
    "engine_restarted": Cause("EngineRestarted", "engine", hardware=False, quietens=True),
    "engine_probe_failed": Cause("EngineProbeFailed", "engine", hardware=False),
}
# Kind of event → the kinds whose incidents it ends, for the same subject.
RECOVERIES: Mapping[str, tuple[str, ...]] = {
    "gpu_recovered": ("gpu_lost", "gpu_unresponsive", "gpu_error"),
    "nvml_recovered": ("nvml_failed",),
    "spot_notice_ended": ("spot_notice",),
    "engine_up": ("engine_down", "engine_hung", "engine_paused"),
    "engine_probe_ok": ("engine_probe_failed",),
}
HARDWARE_ALERTS = frozenset(cause.alertname for cause in CAUSES.values() if cause.hardware)
QUIET_ALERTS = frozenset(cause.alertname for cause in CAUSES.values() if cause.quietens)


class Happened(Protocol):
    """An event of a node, as its row has it."""

    @property
    def node(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True)
class Verdict:
    """What to do about one event, and the rule by which.

    `cordon`: open the incident of `labels` and cordon the node if the policy lets it. `incident`: open it alone.
    `resolve`: end those of `resolves`. `note`: the event is kept, and nothing else happens.
    """

    kind: Literal["cordon", "incident", "resolve", "note"]
    reason: Literal["hardware_fault", "leaving", "critical", "warning", "recovered", "informational", "unknown_kind"]
    labels: Labels | None = None
    title: str = ""
    resolves: tuple[Labels, ...] = ()


def judge(event: Happened) -> Verdict:
    """The verdict on an event by itself, whatever else has happened."""
    if ended := RECOVERIES.get(event.kind):
        resolves = tuple(_labels(event, CAUSES[kind]) for kind in ended)
        return Verdict("resolve", "recovered", resolves=resolves)
    if event.severity == "info":
        return Verdict("note", "informational")
    cause = CAUSES.get(event.kind)
    if cause is None:
        # Of a later version's agent. What it calls critical must reach a person all the same.
        labels = {"alertname": "NodeEvent", "node": event.node, "kind": event.kind, "subject": event.subject}
        return _opens("incident", "critical", event, labels) if _critical(event) else Verdict("note", "unknown_kind")
    if not _critical(event):
        return _opens("incident", "warning", event, _labels(event, cause))
    if cause.cordons:
        return _opens("cordon", cause.rule, event, _labels(event, cause))
    return _opens("incident", "critical", event, _labels(event, cause))


def recovery_of(kind: str) -> str | None:
    """The kind of event that tells of the end of what events of `kind` tell of; None where none does."""
    return next((recovery for recovery, ended in RECOVERIES.items() if kind in ended), None)


def engine_labels(node: str, engine: str) -> list[Labels]:
    """Of the incidents that an engine can have by events."""
    about = [cause.alertname for cause in CAUSES.values() if cause.about == "engine"]
    return [{"alertname": alertname, "node": node, "engine": engine} for alertname in about]


def believed_at(at: datetime, received_at: datetime, oldest: timedelta) -> datetime:
    """When an event counts as having happened: `at` as its node said, unless that cannot be.

    A time that is later than its arrival, or earlier than that by more than `oldest`, is a wrong clock's; the event
    then counts from when it arrived.
    """
    return at if received_at - oldest <= at <= received_at else received_at


def _critical(event: Happened) -> bool:
    return event.severity == "critical"


def _opens(
    kind: Literal["cordon", "incident"],
    reason: Literal["hardware_fault", "leaving", "critical", "warning"],
    event: Happened,
    labels: Labels,
) -> Verdict:
    return Verdict(kind, reason, labels, _title(event, labels))


def _labels(event: Happened, cause: Cause) -> Labels:
    labels = {"alertname": cause.alertname, "node": event.node}
    if cause.about:
        labels[cause.about] = event.subject
    # The message has no field for it; the agent begins the detail with it.
    if cause.number and (numbered := _NUMBERED.match(event.detail)):
        labels[cause.number] = numbered[1]
    return labels


def _title(event: Happened, labels: Labels) -> str:
    """The node and the first clause of what its agent says."""
    headline = _END_OF_HEADLINE.split(event.detail, maxsplit=1)[0] or labels["alertname"]
    return f"{event.node}: {headline}"[:TITLE_CHARACTERS]
