"""Which repairs begin: what the faults of the hardware that stand ask for, one at a time of a node."""

from __future__ import annotations

import logging
from datetime import datetime

from controlplane.alerts.health import HARDWARE_ALERTS
from controlplane.alerts.models import Alert, AlertSource, IncidentState, Severity
from controlplane.core.reported import one_line
from controlplane.fleet.models import Node
from controlplane.remediation import services
from controlplane.remediation.causes import REPAIRS, Action, action_for, cause_of
from controlplane.remediation.limits import FAULT_WINDOW, NODE_WINDOW, too_often
from controlplane.remediation.models import OPEN_STATES, Mode, Remediation, RemediationPolicy, State

log = logging.getLogger(__name__)


def begin_due(now: datetime) -> int:
    """Begin, or note, what the faults of the hardware that stand ask for; how many."""
    firing = Alert.objects.filter(
        state=IncidentState.FIRING, source=AlertSource.EVENT, severity=Severity.CRITICAL,
        labels__alertname__in=sorted(HARDWARE_ALERTS),
    )  # fmt: skip
    # What a person has taken out of its hands stays in theirs: those that were cancelled are known too.
    known = Remediation.objects.exclude(fault=None).values("fault")
    busy = set(Remediation.objects.filter(state__in=OPEN_STATES).values_list("node", flat=True))
    begun = 0
    for fault in firing.exclude(pk__in=known).select_related("incident").order_by("pk"):
        if fault.labels["node"] not in busy and _begin_unless_ill(fault, now):
            begun += 1
            busy.add(fault.labels["node"])
    return begun


def _begin_unless_ill(fault: Alert, now: datetime) -> bool:
    """One that cannot be begun, for whatever reason, must not keep the others waiting."""
    try:
        return _begin(fault, now)
    except Exception:
        log.exception("no repair could be begun of %s", fault.title)
        return False


def _begin(fault: Alert, now: datetime) -> bool:
    current = services.policy()
    cause = cause_of(fault.labels)[: services.CAUSE_CHARACTERS]
    action = action_for(cause, current.actions)
    node = fault.labels["node"]
    if action == "none" or not Node.objects.filter(name=node).exists():
        return False
    state, said = _first_state(fault, cause, action, current, now)
    row = Remediation(
        node=node, gpu=fault.labels.get("gpu", ""), cause=cause, action=action, fault=fault, incident=fault.incident,
        state=state, said=one_line(said), begun_at=now, state_at=now, look_at=now,
        ended_at=None if state in OPEN_STATES else now,
    )  # fmt: skip
    return services.begin(row, now)


def _first_state(
    fault: Alert, cause: str, action: Action, current: RemediationPolicy, now: datetime
) -> tuple[State, str]:
    if action not in REPAIRS:
        return State.ESCALATED, f"{cause} is nothing that a repair of the program's mends"
    if current.mode == Mode.OBSERVE:
        return State.OBSERVED, f"would {action.replace('_', ' ')}; the policy observes only"
    acted = Remediation.objects.exclude(state__in=[State.OBSERVED, State.CANCELLED, State.HELD])
    node, gpu = fault.labels["node"], fault.labels.get("gpu", "")
    of_node = acted.filter(node=node, begun_at__gt=now - NODE_WINDOW)
    of_fault = acted.filter(node=node, gpu=gpu, cause=cause, begun_at__gt=now - FAULT_WINDOW)
    if often := too_often(
        of_node=of_node.count(),
        of_fault=of_fault.count(),
        max_of_a_node=current.max_of_a_node,
        max_of_a_fault=current.max_of_a_fault,
    ):
        return State.ESCALATED, often
    return State.HELD, "waits for the node to be cordoned, by a person or by the cordon policy"
