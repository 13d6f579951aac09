"""The only writer of repairs and of their policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts.models import IncidentState, Severity
from controlplane.alerts.services import alerts, incidents
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.core import fields as f
from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.models import AuditEntry
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.reported import one_line
from controlplane.fleet.models import Engine, Node
from controlplane.fleet.services import ENGINES, NODES, acts
from controlplane.remediation.causes import ACTION_NAMES, REPAIRS
from controlplane.remediation.limits import trips
from controlplane.remediation.machine import Decision
from controlplane.remediation.models import (
    OPEN_STATES,
    UNMENDED_STATES,
    Mode,
    Remediation,
    RemediationPolicy,
    State,
)
from wire.canonical import Document

NOUN, POLICY_NOUN, POLICY_KEY = "remediation", "remediation policy", "remediation-policy"
# What the time line of an incident calls it.
ENTRY = "remediation"
NEEDS_PERSON = "RemediationNeedsPerson"
CAUSE_CHARACTERS = 64
_HOLDER = "remediation "
# From here on it is the repair that may end the fault: a GPU that is back after a reboot is no reason to stop half-way.
_BEGUN_STATES = (State.DRAINED, State.REMEDIATING, State.VERIFYING)
_Millis = Annotated[int, Field(ge=1000, le=30 * 86_400_000)]
_Cause = Annotated[f.Text, Field(min_length=1, max_length=CAUSE_CHARACTERS)]


def _known_action(name: str) -> str:
    if name not in ACTION_NAMES:
        raise PydanticCustomError("action", "{known}", {"known": f"give one of {', '.join(ACTION_NAMES)}"})
    return name


class PolicyFields(f.Fields):
    """`actions`: cause (`xid 79`, `GpuLost`) → `restart_engines`, `reset_gpu`, `reboot`, `support` or `none`, where it
    shall differ from the table. At most `max_nodes_permille` of the nodes, and `min_nodes` at least, are taken in hand
    within `window_ms`: whatever asks for more trips the breaker."""

    mode: Annotated[Mode, Field(strict=False)] = f.default_of(RemediationPolicy, "mode")
    actions: Annotated[
        dict[_Cause, Annotated[str, AfterValidator(_known_action)]], Field(max_length=200)
    ] = Field(default_factory=dict)  # fmt: skip
    max_nodes_permille: f.PerMille = f.default_of(RemediationPolicy, "max_nodes_permille")
    min_nodes: Annotated[int, Field(ge=0, le=100_000)] = f.default_of(RemediationPolicy, "min_nodes")
    window_ms: _Millis = f.default_of(RemediationPolicy, "window_ms")
    max_of_a_node: Annotated[int, Field(ge=1, le=1000)] = f.default_of(RemediationPolicy, "max_of_a_node")
    max_of_a_fault: Annotated[int, Field(ge=1, le=1000)] = f.default_of(RemediationPolicy, "max_of_a_fault")
    drain_limit_ms: Annotated[int, Field(ge=1000, le=3_600_000)] = f.default_of(RemediationPolicy, "drain_limit_ms")
    verify_ms: _Millis = f.default_of(RemediationPolicy, "verify_ms")


class Outdated(Exception):
    """The repair has been changed since it was looked at."""


def policy() -> RemediationPolicy:
    """The policy; that which nobody has written yet observes."""
    return RemediationPolicy.objects.order_by("pk").first() or RemediationPolicy(pk=1)


def describe_policy(row: RemediationPolicy) -> Document:
    return {
        **{name: getattr(row, name) for name in PolicyFields.model_fields},
        "tripped_at": f.iso(row.tripped_at),
        "tripped_because": row.tripped_because or None,
    }


def change_policy(unit: UnitOfWork, fields: Mapping[str, Any]) -> RemediationPolicy:
    """Raises Refused with every problem."""
    row = policy()
    before = describe_policy(row)
    written = {name: before[name] for name in PolicyFields.model_fields}
    for name, value in f.read(PolicyFields, {**written, **fields}).model_dump().items():
        setattr(row, name, value)
    row.save()
    unit.record(POLICY_NOUN, POLICY_KEY, before, describe_policy(row))
    return row


def reset_breaker(unit: UnitOfWork) -> RemediationPolicy:
    """Let repairs begin again: only a person does."""
    row = policy()
    before = describe_policy(row)
    row.tripped_at, row.tripped_because = None, ""
    row.save()
    unit.record(POLICY_NOUN, POLICY_KEY, before, describe_policy(row))
    return row


def holder(row: Remediation) -> str:
    """As which it holds engines out of service."""
    return f"{_HOLDER}{row.pk}"


def begin(row: Remediation, now: datetime) -> bool:
    """Write one that is new. False where another worker was faster."""
    try:
        with transaction.atomic(), unit_of_work(SYSTEM, one_line(f"{row.cause} on {row.node}")) as unit:
            row.save(force_insert=True)
            _tell(row, now)
            unit.record(NOUN, str(row.pk), None, describe(row))
    except IntegrityError:
        return False
    return True


def _trip_if_too_many(unit: UnitOfWork, row: Remediation, now: datetime) -> str:
    """Why a repair that is held may not begin; the breaker trips where it is one too many. Empty: it may.

    In the unit that begins it: of two workers the second sees what the first has begun.
    """
    current = policy()
    if current.tripped_at is not None:
        return current.tripped_because
    acted = Remediation.objects.filter(begun_at__gt=now - timedelta(milliseconds=current.window_ms))
    others = acted.exclude(node=row.node).exclude(state__in=[State.HELD, State.OBSERVED])
    because = trips(
        # Those at which nothing was done were not taken in hand.
        others=others.exclude(state__in=[State.ESCALATED, State.CANCELLED], acts={}).values("node").distinct().count(),
        nodes=Node.objects.count(),
        max_nodes_permille=current.max_nodes_permille,
        min_nodes=current.min_nodes,
    )
    if because is not None:
        before = describe_policy(current)
        current.tripped_at, current.tripped_because = now, because
        current.save()
        unit.record(POLICY_NOUN, POLICY_KEY, before, describe_policy(current))
    return because or ""


def carry_out(
    row: Remediation,
    decision: Decision,
    now: datetime,
    *,
    decided_again: Callable[[Remediation], Decision] | None = None,
) -> None:
    """Write what was decided of a row as it was then, in one revision. Raises Outdated, Refused.

    `decided_again`: what is decided where nobody else writes any more; where that is something else, nothing is done,
    so that no act follows a person who has just taken the node back.
    """
    if decision.state == row.state and not (decision.ask or decision.back or decision.hold_out):
        changed = {"said": one_line(decision.said), "well_since": decision.well_since}
        Remediation.objects.filter(pk=row.pk, state=row.state, state_at=row.state_at).update(**changed)
        return
    with unit_of_work(SYSTEM, one_line(f"{holder(row)}: {decision.said}")) as unit:
        held = _lock(row.pk)
        if (held.state, held.state_at, held.acts) != (row.state, row.state_at, row.acts) or (
            decided_again is not None and decided_again(held) != decision
        ):
            raise Outdated(f"{holder(row)}, or what it goes by, has been changed since it was looked at")
        before = describe(held)
        if held.state == State.HELD and decision.state == State.QUARANTINED:
            if because := _trip_if_too_many(unit, held, now):
                decision = Decision(State.HELD, f"the breaker is tripped: {because}")
            else:
                held.begun_at = now
        for name in decision.hold_out:
            ENGINES.hold_out(unit, name, holder(held))
        for new in decision.ask:
            subject = {"engine": new.engine} if new.engine else {"node": held.node}
            asked = acts.create(unit, {"action": new.action, **subject, "arguments": dict(new.arguments)})
            held.acts = {**held.acts, new.key: asked.act_id}
        if decision.back:
            _give_back(unit, held)
        if decision.uncordon:
            NODES.uncordon(unit, held.node)
        _set_state(held, decision.state, decision.said, now, well_since=decision.well_since)
        unit.record(NOUN, str(held.pk), before, describe(held))


def cancel(unit: UnitOfWork, remediation_id: int) -> Remediation:
    """Take a repair out of the program's hands. Engines are put back; a cordon of the node stays. Raises NotFound."""
    row = _lock(remediation_id)
    if row.state in (*OPEN_STATES, *UNMENDED_STATES):
        before = describe(row)
        _give_back(unit, row)
        _set_state(row, State.CANCELLED, f"cancelled by {unit.actor.name}: {unit.reason}", timezone.now())
        unit.record(NOUN, str(row.pk), before, describe(row))
    return row


def act_on(unit: UnitOfWork, remediation_id: int) -> Remediation:
    """Begin what was only observed, or try again what failed or was a person's to look at. Raises Conflict."""
    row = _lock(remediation_id)
    if row.state not in (State.OBSERVED, *UNMENDED_STATES):
        raise Conflict(f"this repair is {row.state}; only one that ended unrepaired is begun", code="not_ended")
    if row.action not in REPAIRS:
        raise Conflict(f"{row.cause} asks for {row.action}, which is no repair of the program's", code="no_repair")
    if Remediation.objects.filter(node=row.node, state__in=OPEN_STATES).exists():
        raise Conflict(f"another repair of {row.node} is open", code="open")
    before = describe(row)
    row.acts, row.ended_at, row.well_since = {}, None, None
    _set_state(row, State.HELD, f"begun by {unit.actor.name}: {unit.reason}", timezone.now())
    unit.record(NOUN, str(row.pk), before, describe(row))
    return row


def is_wanted(row: Remediation) -> bool:
    """Whether the fault stands, or the repair itself is what ended it: no person has ended its incident."""
    if _fires(row):
        return True
    return row.state in (*_BEGUN_STATES, *UNMENDED_STATES) and bool(row.acts) and not _was_ended_by_a_person(row)


def _was_ended_by_a_person(row: Remediation) -> bool:
    ended = AuditEntry.objects.filter(noun=incidents.NOUN, key=str(row.incident_id))
    return ended.filter(before__state=IncidentState.FIRING, after__state=IncidentState.RESOLVED).exists()


def end_alerts_of_ended(now: datetime) -> int:
    """Nobody is called any more for a fault that is over; how many."""
    calling = Remediation.objects.filter(alert__state=IncidentState.FIRING).select_related("fault")
    if not calling.exists():
        return 0
    with transaction.atomic():
        lock_alerts()
        called = list(calling)
        # Another repair may call for a person by the same alert.
        needed = {row.alert_id for row in called if _needs_person(row)}
        over = {row.alert_id for row in called if row.alert_id is not None} - needed
        return alerts.resolve_alerts(over, now, "the fault is over, or is being repaired again")


def _needs_person(row: Remediation) -> bool:
    if row.state not in UNMENDED_STATES:
        return False
    # What was left half-way stays a person's, also where the fault itself is over.
    return _fires(row) or (is_wanted(row) and _is_cordoned(row))


def _fires(row: Remediation) -> bool:
    return row.fault is not None and row.fault.state == IncidentState.FIRING


def _is_cordoned(row: Remediation) -> bool:
    return Node.objects.filter(name=row.node, cordoned=True).exists()


def give_back_what_a_person_took(now: datetime) -> int:
    """Engines of repairs that failed, once a person has uncordoned their node or ended the incident; how many."""
    holding = Engine.objects.filter(held_out_by__startswith=_HOLDER).values_list("held_out_by", flat=True)
    keys = {int(each.removeprefix(_HOLDER)) for each in holding}
    given = 0
    for row in Remediation.objects.filter(pk__in=keys, state__in=UNMENDED_STATES).select_related("fault"):
        if is_wanted(row) and _is_cordoned(row):
            continue
        with unit_of_work(SYSTEM, f"{holder(row)}: a person took the node in hand") as unit:
            _give_back(unit, row)
        given += 1
    return given


def _give_back(unit: UnitOfWork, row: Remediation) -> None:
    """Engines that this one holds out, and acts that no agent has begun."""
    for name in Engine.objects.filter(held_out_by=holder(row)).order_by("name").values_list("name", flat=True):
        ENGINES.put_back(unit, name, holder(row))
    acts.cancel_waiting(unit, row.acts.values())


def _set_state(row: Remediation, state: State, said: str, now: datetime, *, well_since: datetime | None = None) -> None:
    moved = row.state != state
    row.state, row.said, row.well_since, row.look_at = state, one_line(said), well_since, now
    if moved:
        row.state_at = now
        row.ended_at = None if state in OPEN_STATES else now
        _tell(row, now)
    row.save()


def _tell(row: Remediation, now: datetime) -> None:
    """On the incident's time line, and to people where they are needed."""
    if row.incident is not None:
        details = {"remediation": row.pk, "state": row.state, "action": row.action}
        incidents.note(row.incident, ENTRY, f"{row.state}: {row.said}", now, details)
    if row.state in UNMENDED_STATES:
        labels = {"alertname": NEEDS_PERSON, "node": row.node, "cause": row.cause, "severity": "critical"}
        if row.gpu:
            labels["gpu"] = row.gpu
        title = f"{row.node}: {row.cause} is not repaired: {row.said}"
        row.alert, _ = alerts.open_alert(
            labels=labels, source="event", severity=Severity.CRITICAL, title=title[:200],
            annotations={"summary": title, "description": row.said}, at=now, text=row.said,
        )  # fmt: skip
        row.save(update_fields=["alert"])


def get(remediation_id: int) -> Remediation:
    """Raises NotFound."""
    row = Remediation.objects.select_related("incident", "fault").filter(pk=remediation_id).first()
    if row is None:
        raise NotFound(f"there is no remediation {remediation_id}")
    return row


def _lock(remediation_id: int) -> Remediation:
    get(remediation_id)
    return Remediation.objects.select_for_update().get(pk=remediation_id)


def page(
    *, node: str = "", state: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[Remediation], int | None]:
    """Newest first; `after` is the last of the page before."""
    wanted = {name: value for name, value in (("node", node), ("state", state)) if value}
    found = Remediation.objects.filter(**wanted)
    if after:
        found = found.filter(pk__lt=after)
    return page_of(found.order_by("-pk"), limit, lambda row: row.pk)


def describe(row: Remediation) -> Document:
    return {
        "id": row.pk,
        "node": row.node,
        "gpu": row.gpu or None,
        "cause": row.cause,
        "action": row.action,
        "incident": row.incident_id,
        "state": row.state,
        "said": row.said or None,
        "begun_at": f.iso(row.begun_at),
        "state_at": f.iso(row.state_at),
        "ended_at": f.iso(row.ended_at),
        "acts": row.acts,
        "well_since": f.iso(row.well_since),
    }
