"""The only writer of acts: what agents are asked to do once, from the asking to what became of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from msgspec import UNSET, structs
from pydantic import Field

from controlplane import settings_rows
from controlplane.core import fields as f
from controlplane.core.changes import SYSTEM, Section, UnitOfWork, unit_of_work
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.models import Target, TargetKind
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.reported import reported_text, storable_text
from controlplane.fleet import models as rows
from controlplane.fleet.models import OPEN_STATES, ActState
from controlplane.fleet.services.engines import ENGINES
from controlplane.fleet.services.nodes import NODES
from wire.acts import ACTIONS, ActRefused, read_act
from wire.canonical import Document, NotCanonical, check_canonical
from wire.messages import ActReport
from wire.problems import Problem
from wire.snapshot import Act, ActId

NOUN, SECTION_NAME = "act", "acts"
EXPIRES_MAX_SECONDS = 7 * 86_400
# A slice with all of them stays small.
OPEN_MAX = 64
_LIKE_ID = f.Like(ActId, "give an act's id: 32 lower-case hex digits")


class NewActFields(f.Fields):
    """What is asked, of a node or of one engine. The reason is that of the write, the asker its actor."""

    action: Annotated[str, Field(max_length=64)]
    node: f.Name | None = None
    engine: f.Name | None = None
    arguments: Annotated[dict[str, Any], Field(max_length=64)] = {}
    expires_in_seconds: Annotated[int, Field(ge=1, le=EXPIRES_MAX_SECONDS)] = 3600


def describe(row: rows.Act) -> Document:
    return {
        "id": row.act_id,
        "node": row.node.name,
        "engine": row.engine.name if row.engine else None,
        "action": row.action,
        "arguments": row.arguments,
        "order": row.pk,
        "state": row.state,
        "result_reason": row.result_reason or None,
        "detail": row.detail or None,
        "issued_at": f.iso(row.issued_at),
        "expires_at": f.iso(row.expires_at),
        "issued_by": row.issued_by,
        "reason": row.reason,
        "state_at": f.iso(row.state_at),
        "took_ms": row.took_ms,
        "progress_permille": row.progress_permille if row.state == ActState.RUNNING else None,
    }


def create(unit: UnitOfWork, fields: Mapping[str, Any]) -> rows.Act:
    """Ask for an act. Whether the node's own policy allows it is for its agent to say.

    An engine that is to be drained is cordoned with it, unless it is held out of service already; taking the cordon
    back stays a person's. Raises Refused with every problem.
    """
    asked = f.read(NewActFields, fields)
    node, engine = _subject(asked)
    now = timezone.now()
    row = rows.Act(
        act_id=uuid.uuid4().hex,
        node=node,
        engine=engine,
        action=asked.action,
        arguments=asked.arguments,
        issued_at=now,
        expires_at=now + timedelta(seconds=asked.expires_in_seconds),
        issued_by=unit.actor.name,
        reason=unit.reason,
        state_at=now,
    )
    f.refuse_if(_problems(row))
    if engine is not None and row.action == "drain" and not (engine.cordoned or engine.held_out_by):
        row.engine = ENGINES.cordon(unit, engine.name)
    row.save(force_insert=True)
    unit.record(NOUN, row.act_id, None, describe(row))
    unit.touch(SECTION_NAME, row.act_id)
    return row


def _subject(asked: NewActFields) -> tuple[rows.Node, rows.Engine | None]:
    """The locked rows, an engine before its node, as a report of the node locks them."""
    if (asked.node is None) == (asked.engine is None):
        f.refuse_if([Problem("/", "one_of", "give either node or engine; an engine's node is known")])
    problems: list[Problem] = []
    engine = ENGINES.referenced("/engine", asked.engine, problems) if asked.engine else None
    if engine is not None and engine.node is not None:
        return NODES.lock(engine.node.name), engine
    if engine is not None:
        message = f"engine {engine.name!r} has no node whose agent could act on it"
        problems.append(Problem("/engine", "no_node", message))
    elif asked.node and (node := NODES.referenced("/node", asked.node, problems)):
        return node, None
    raise f.refused(problems)


def _problems(row: rows.Act) -> list[Problem]:
    problems = []
    try:
        check_canonical(row.arguments, "/arguments")
        read_act(_wire_act(row, order=0), row.engine.kind if row.engine else None)
    except NotCanonical as error:
        problems.append(Problem(error.path, "canonical", error.rule))
    except ActRefused as refused:
        problems += refused.problems
    if row.action == "stop" and row.engine is not None and not row.engine.takes_no_work:
        message = f"engine {row.engine.name!r} takes new requests; cordon and drain it first"
        problems.append(Problem("/engine", "not_cordoned", message))
    subject = "/engine" if row.engine else "/node"
    if not _agents().filter(name=row.node.name).exists():
        message = f"no agent of node {row.node.name!r} is enrolled, so none could do it"
        problems.append(Problem(subject, "no_agent", message))
    if rows.Act.objects.filter(node=row.node, state__in=OPEN_STATES).count() >= OPEN_MAX:
        message = f"{OPEN_MAX} acts of node {row.node.name!r} are open; wait for them or cancel some"
        problems.append(Problem(subject, "too_many", message))
    return problems


def _agents() -> QuerySet[Target]:
    return Target.objects.filter(kind=TargetKind.NODE, revoked_at=None)


def _wire_act(row: rows.Act, order: int) -> Act:
    return Act(
        action=row.action,
        order=order,
        issued_at_ms=f.epoch_ms(row.issued_at),
        expires_at_ms=f.epoch_ms(row.expires_at),
        engine=row.engine.name if row.engine else UNSET,
        arguments=row.arguments,
    )


def _acts() -> QuerySet[rows.Act]:
    return rows.Act.objects.select_related("node", "engine")


def get(act_id: str) -> rows.Act:
    return _found(act_id, _acts())


def _found(act_id: str, acts: QuerySet[rows.Act]) -> rows.Act:
    row = None if _LIKE_ID.refusal(act_id) else acts.filter(act_id=act_id).first()
    if row is None:
        raise NotFound(f"there is no act {act_id!r}")
    return row


def page(
    *, node: str = "", engine: str = "", state: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[rows.Act], int | None]:
    """Acts, newest first; `after` is the last of the page before. Raises NotFound for an unknown node or engine."""
    acts = _acts()
    if node:
        acts = acts.filter(node=NODES.get(node))
    if engine:
        acts = acts.filter(engine=ENGINES.get(engine))
    if state:
        acts = acts.filter(state=state)
    if after:
        acts = acts.filter(pk__lt=after)
    return page_of(acts.order_by("-pk"), limit, lambda row: row.pk)


def cancel(unit: UnitOfWork, act_id: str) -> rows.Act:
    """Take an act back that no agent has begun; one that is cancelled already stays so. Raises Conflict."""
    row = _found(act_id, _acts().select_for_update(of=("self",)))
    if row.state == ActState.WAITING:
        _set_state(unit, row, ActState.CANCELLED, timezone.now())
    elif row.state != ActState.CANCELLED:
        raise Conflict(f"act {act_id} is {row.state}; only one that waits can be cancelled", code="not_waiting")
    return row


def cancel_waiting(unit: UnitOfWork, act_ids: Iterable[str]) -> None:
    """Take back those of these that no agent has begun; the others go on."""
    waiting = _acts().select_for_update(of=("self",)).filter(act_id__in=list(act_ids), state=ActState.WAITING)
    for row in list(waiting.order_by("pk")):
        _set_state(unit, row, ActState.CANCELLED, timezone.now())


def changes_any(node_name: str, reports: Sequence[ActReport]) -> bool:
    """Whether the node tells the end of an act that can still have one, or that a cancelled one was begun."""
    told = {report.id: report for report in reports}
    acts = rows.Act.objects.filter(node__name=node_name, act_id__in=told)
    return bool(told) and any(_changes(row, told[row.act_id]) for row in acts)


def _changes(row: rows.Act, report: ActReport) -> bool:
    """An act that has ended stays as it is, but for one that was cancelled when its agent had begun it."""
    if row.state == ActState.CANCELLED:
        return report.state in (ActState.RUNNING, ActState.DONE, ActState.FAILED)
    return row.state in OPEN_STATES and report.state not in OPEN_STATES


def take_results(unit: UnitOfWork | None, node: rows.Node, reports: Sequence[ActReport], now: datetime) -> list[str]:
    """Store how far acts have come; returns those that are not this node's. What `changes_any` finds needs the unit."""
    if not reports:
        return []
    by_id = {report.id: report for report in reports}
    known = list(_acts().select_for_update(of=("self",)).filter(node=node, act_id__in=by_id).order_by("pk"))
    for row in known:
        report = by_id[row.act_id]
        # A wrong clock of the node's puts no state before the act or into the future.
        at = min(max(f.from_epoch_ms(min(report.at_ms, f.EPOCH_MS_MAX)), row.issued_at), now)
        if report.state == "running" and row.state in OPEN_STATES:
            row.state, row.state_at, row.took_ms = report.state, at, report.took_ms
            row.progress_permille = None if report.progress_permille is UNSET else report.progress_permille
            row.save(update_fields=["state", "state_at", "took_ms", "progress_permille"])
        elif unit is not None and _changes(row, report):
            row.took_ms = report.took_ms
            if report.state == "running":
                # Shown, and asked of the agent, until its end: who cancelled it may have gone on as if it never ran.
                _set_state(unit, row, ActState.RUNNING, at, detail="its agent had begun it when it was cancelled")
                continue
            # The detail whole: a command's last lines, which tell why it failed, stand at its end.
            end = ActState(report.state)
            _set_state(unit, row, end, at, reported_text(report.reason), storable_text(report.detail))
    return sorted(by_id.keys() - {row.act_id for row in known})


def expire(now: datetime) -> int:
    """End the acts whose end no agent will tell, or has told in time; answers how many."""
    if not _untold(_acts(), now):
        return 0
    with unit_of_work(SYSTEM, "no agent told what became of these acts") as unit:
        untold = _untold(_acts().select_for_update(of=("self",)), now)
        for row, reason in untold:
            _set_state(unit, row, ActState.EXPIRED, now, reason)
    return len(untold)


def _untold(acts: QuerySet[rows.Act], now: datetime) -> list[tuple[rows.Act, str]]:
    """Each with the reason. One that may take hours, as a fetch may, has them before it counts as untold."""
    long_over = now - timedelta(seconds=settings_rows.ACT_UNTOLD_SECONDS.read())
    agents = set(_agents().values_list("name", flat=True))
    wanted = acts.filter(Q(expires_at__lt=long_over) | ~Q(node__name__in=agents), state__in=OPEN_STATES)
    return [
        (row, "untold" if row.node.name in agents else "no_agent")
        for row in wanted.order_by("pk")
        if row.node.name not in agents or row.expires_at + _beyond_an_hour(row) < long_over
    ]


def _beyond_an_hour(row: rows.Act) -> timedelta:
    """By how much an act may take longer than the hour that HEADWORKS_ACT_UNTOLD_SECONDS has for each."""
    defaults = {field.name: field.default for field in structs.fields(ACTIONS[row.action])}
    limit_seconds = row.arguments.get("limit_seconds", defaults.get("limit_seconds", 0))
    return max(timedelta(), timedelta(seconds=limit_seconds) - timedelta(hours=1))


def prune(ended_before: datetime) -> int:
    """Forget what ended long ago; answers how many."""
    return rows.Act.objects.exclude(state__in=OPEN_STATES).filter(state_at__lt=ended_before).delete()[0]


def _set_state(
    unit: UnitOfWork, row: rows.Act, state: ActState, at: datetime, reason: str = "", detail: str = ""
) -> None:
    before = describe(row)
    row.state, row.state_at, row.result_reason, row.detail = state, at, reason, detail
    row.save()
    unit.record(NOUN, row.act_id, before, describe(row))
    unit.touch(SECTION_NAME, row.act_id)


def _compile(act_id: str) -> Document | None:
    """What the node's agent is told, and which node that is; an act that has ended is told no more."""
    row = _acts().filter(act_id=act_id, state__in=OPEN_STATES).first()
    if row is None:
        return None
    told: Document = {
        "node": row.node.name,
        "action": row.action,
        "order": row.pk,
        "issued_at_ms": f.epoch_ms(row.issued_at),
        "expires_at_ms": f.epoch_ms(row.expires_at),
    }
    if row.engine is not None:
        told["engine"] = row.engine.name
    if row.arguments:
        told["arguments"] = row.arguments
    return told


def _keys() -> list[str]:
    return list(rows.Act.objects.filter(state__in=OPEN_STATES).order_by("pk").values_list("act_id", flat=True))


# Not restored: a rollback asks no agent to do a thing again.
SECTION = Section(SECTION_NAME, _compile, _keys)
