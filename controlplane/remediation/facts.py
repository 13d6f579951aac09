"""What the machine goes by: rows of the fleet, of acts and of incidents, as they are now."""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane import settings_rows
from controlplane.alerts.health import CAUSES, HARDWARE_ALERTS
from controlplane.alerts.models import Alert, AlertSource, IncidentState, NodeEvent, Severity
from controlplane.core.models import AuditEntry
from controlplane.core.nouns import some_of
from controlplane.fleet.models import Act, ActState, Engine, Gpu, Node
from controlplane.fleet.services import NODES
from controlplane.fleet.services.engines import LEAVING
from controlplane.remediation import services
from controlplane.remediation.machine import ActSeen, EngineSeen, Seen, View
from controlplane.remediation.models import Remediation, RemediationPolicy, State

# A report may have been made before an act ended and come after it.
SETTLE = timedelta(seconds=2)
# A node that is to be taken away is no fault that came back.
_LEAVING_KINDS = [kind for kind, cause in CAUSES.items() if cause.rule == "leaving"]
_FORGOTTEN = ActSeen("failed", "nobody knows of the act any more")
_ENDED = {state for state in ActState.values if state not in ("waiting", "running")}


def view_of(row: Remediation, policy: RemediationPolicy) -> View:
    return View(
        name=services.holder(row),
        state=State(row.state),
        action=row.action,
        gpu=row.gpu,
        state_at=row.state_at,
        asked=row.acts,
        well_since=row.well_since,
        drain_limit=timedelta(milliseconds=policy.drain_limit_ms),
        verify=timedelta(milliseconds=policy.verify_ms),
    )


def gather(row: Remediation, policy: RemediationPolicy, now: datetime) -> Seen:
    node = Node.objects.filter(name=row.node).first()
    acts = _acts(row)
    silent = timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    last_end = max((act.ended_at for act in acts.values() if act.ended_at is not None), default=None)
    return Seen(
        cordoned=node is not None and node.cordoned,
        fires=node is not None and services.is_wanted(row),
        tripped=policy.tripped_because if policy.tripped_at is not None else "",
        engines=tuple(_engine(each, last_end) for each in _engines(row.node)),
        node_allowed=frozenset(node.allowed_acts.get("", ()) if node is not None else ()),
        acts=acts,
        gpu_well=not row.gpu or _gpu_is_well(row, last_end),
        policys_cordon=_is_policys_cordon(row.node),
        heard=node is not None and node.reported_at is not None and node.reported_at > now - silent,
        struck_again=_struck_again(row, last_end),
        other_faults=_other_faults(row),
    )


def _acts(row: Remediation) -> dict[str, ActSeen]:
    found = {act.act_id: act for act in Act.objects.filter(act_id__in=row.acts.values())}
    return {key: _act(found[act_id]) if act_id in found else _FORGOTTEN for key, act_id in row.acts.items()}


def _act(act: Act) -> ActSeen:
    said = act.detail or act.result_reason
    return ActSeen(act.state, said, act.state_at if act.state in _ENDED else None)


def _engines(node: str) -> list[Engine]:
    return list(Engine.objects.select_related("node").filter(node__name=node).order_by("name"))


def _engine(row: Engine, after: datetime | None) -> EngineSeen:
    return EngineSeen(
        name=row.name,
        kind=row.kind,
        up=row.state == "up" and _is_since(row.reported_at, after),
        well=row.condition == "ok",
        allowed=frozenset(row.node.allowed_acts.get(row.name, ()) if row.node else ()),
        held_out_by="" if row.held_out_by == LEAVING else row.held_out_by,
    )


def _gpu_is_well(row: Remediation, after: datetime | None) -> bool:
    gpu = Gpu.objects.filter(node__name=row.node, uuid=row.gpu, state="ok").first()
    return gpu is not None and _is_since(gpu.reported_at, after)


def _is_since(reported_at: datetime | None, after: datetime | None) -> bool:
    return reported_at is not None and (after is None or reported_at > after + SETTLE)


def _is_policys_cordon(node: str) -> bool:
    """Whether nobody has cordoned it since the policy did, which does so in the name of the node."""
    last = AuditEntry.objects.filter(noun=NODES.noun, key=node).order_by("pk").last()
    return last is not None and last.actor_kind == "target"


def _struck_again(row: Remediation, after: datetime | None) -> str:
    if row.state != State.VERIFYING or after is None:
        return ""
    since = NodeEvent.objects.filter(node=row.node, severity=Severity.CRITICAL, received_at__gt=after, at__gt=after)
    hardware = since.exclude(kind__startswith="engine_").exclude(kind__in=_LEAVING_KINDS).order_by("pk").first()
    return hardware.detail if hardware is not None else ""


def _other_faults(row: Remediation) -> str:
    firing = Alert.objects.filter(
        labels__node=row.node, state=IncidentState.FIRING, source=AlertSource.EVENT, severity=Severity.CRITICAL
    )
    others = [
        alert.title
        for alert in firing.order_by("pk")
        if alert.labels["alertname"] in HARDWARE_ALERTS and alert.labels.get("gpu", "") != row.gpu
    ]
    return some_of(others) if others else ""
