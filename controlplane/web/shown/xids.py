"""The XIDs that agents told of: which GPU had which, how often, when last, and what it means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.alerts import runbooks
from controlplane.alerts.models import NodeEvent

# A storm is told by few events, so these many reach far back.
EVENTS_MAX = 1000
# As agents write an event's detail (gpu_agent/nvml/collector.py).
_DETAIL = re.compile(r"(?P<kind>XID|SXid) (?P<number>\d+)(?: \((?P<name>[^()]*)\))?")
_CLASS = re.compile(r"class (?P<class>\w+), action (?P<action>\w+)(?:, then (?P<then>\w+))?")
_UNSAID = re.compile(r"; (\d+) more of it since")
_ALERTS = {"xid": "GpuXid", "sxid": "NvSwitchSxid"}
CLASSES = {
    "application": _("application"),
    "sympathetic": _("follows another"),
    "driver": _("driver"),
    "memory": _("GPU memory"),
    "hardware": _("hardware"),
    "nvlink": _("NVLink"),
    "information": _("information"),
    "unknown": _("unknown"),
}
ACTIONS = {
    "none": _("nothing to be done"),
    "restart_app": _("restart the engine"),
    "reset_gpu": _("reset the GPU"),
    "cordon_drain_reset": _("cordon, drain, then reset the GPU"),
    "cordon_reboot": _("cordon, then reboot the node"),
    "restart_vm": _("restart the virtual machine"),
    "run_diagnostics": _("run diagnostics"),
    "check_mechanicals": _("check power and seating"),
    "check_nvlink": _("check the NVLinks"),
    "check_uvm": _("check the driver's log"),
    "read_recovery_action": _("do what the driver asks for"),
    "contact_support": _("ask the vendor"),
}


@dataclass(frozen=True)
class XidLine:
    """One XID of one GPU, or of one NVSwitch. `gpu` is its index where the node still has it; else None."""

    number: int
    name: str
    kind: str
    gpu: int | None
    subject: str
    severity: str
    class_label: str
    action_label: str
    count: int
    last_at: datetime
    runbook_url: str


def history(node: str, gpus: Mapping[str, int]) -> list[XidLine]:
    """The newest first. `gpus`: UUID → index."""
    events = NodeEvent.objects.filter(node=node, kind__in=_ALERTS).order_by("-at", "-pk")
    return lines_of(events[:EVENTS_MAX], gpus)


def lines_of(events: Iterable[NodeEvent], gpus: Mapping[str, int]) -> list[XidLine]:
    """One line for each XID of each GPU, from events of which the newest comes first. Pure."""
    newest: dict[tuple[str, int], NodeEvent] = {}
    counts: dict[tuple[str, int], int] = {}
    for event in events:
        found = _DETAIL.search(event.detail)
        if found is None:
            continue
        key = event.subject, int(found["number"])
        unsaid = _UNSAID.search(event.detail)
        newest.setdefault(key, event)
        counts[key] = counts.get(key, 0) + 1 + (int(unsaid[1]) if unsaid else 0)
    return [_line(event, number, counts[subject, number], gpus) for (subject, number), event in newest.items()]


def _line(event: NodeEvent, number: int, count: int, gpus: Mapping[str, int]) -> XidLine:
    told, asks = _DETAIL.search(event.detail), _CLASS.search(event.detail)
    return XidLine(
        number=number,
        name=(told["name"] if told else "") or "",
        kind=told["kind"] if told else "XID",
        gpu=gpus.get(event.subject),
        subject=event.subject,
        severity=event.severity,
        class_label=str(CLASSES.get(asks["class"], asks["class"])) if asks else "",
        action_label=_asked(asks["action"], asks["then"]) if asks else "",
        count=count,
        last_at=event.at,
        runbook_url=runbooks.of_event(_ALERTS[event.kind], event.detail).get("runbook_url", ""),
    )


def _asked(action: str, then: str | None) -> str:
    label = str(ACTIONS.get(action, action))
    if then is None:
        return label
    return gettext("%(action)s; if it goes on, %(then)s") % {"action": label, "then": ACTIONS.get(then, then)}
