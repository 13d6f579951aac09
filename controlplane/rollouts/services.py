"""The only writer of rollouts: what people do with one, and carrying out what the machine decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.utils import timezone

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.reported import reported_text
from controlplane.fleet.models import Engine
from controlplane.fleet.services import ENGINES, acts
from controlplane.rollouts import machine, standing
from controlplane.rollouts.beginning import Prepared, prepare
from controlplane.rollouts.facts import gather, routes_naming
from controlplane.rollouts.machine import TAKE_BACK, Decision, StepChange
from controlplane.rollouts.models import OPEN_STATES, Rollout, State, Step, StepState
from controlplane.rollouts.observed import Facts
from controlplane.rollouts.sides import Pair, base_of, left_as
from controlplane.rollouts.verdicts import NewAct
from controlplane.rollouts.versions import publish
from controlplane.rollouts.waking import wake_on_commit
from controlplane.routing.services import ROUTES
from wire.canonical import Document

NOUN = "rollout"
_ENDED = (State.DONE, State.RETURNED, State.ABORTED, State.FAILED)
# What has stopped half-way can still be returned.
_RETURNABLE = (State.RUNNING, State.PAUSED, State.ABORTED, State.FAILED)
_STEP_ENDED = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)


class Outdated(Exception):
    """A decision on a rollout that somebody wrote to meanwhile; it is taken anew."""


def begin(unit: UnitOfWork, fields: Mapping[str, Any]) -> Rollout:
    """Begin the rollout that is asked for. Engines of a new side are registered, and held out until they are ready.

    Raises Refused with every problem, Conflict where one of its pools is in another rollout or a staged change is in
    its way.
    """
    prepared = prepare(unit, fields)
    now = timezone.now()
    row = Rollout.objects.create(
        **prepared.columns,
        owner=unit.actor.name,
        reason=unit.reason,
        begun_at=now,
        look_at=now,
    )
    Step.objects.bulk_create(
        Step(rollout=row, index=index, kind=step.kind, arguments=step.arguments)
        for index, step in enumerate(prepared.steps)
    )
    _hold_new_side(unit, row, prepared)
    unit.record(NOUN, str(row.pk), None, standing.audited(row))
    wake_on_commit()
    return row


def _hold_new_side(unit: UnitOfWork, row: Rollout, prepared: Prepared) -> None:
    _lock_engines(prepared.held_out)
    for name, held_by in Engine.objects.filter(name__in=prepared.held_out).values_list("name", "held_out_by"):
        if held_by:
            ENGINES.put_back(unit, name, held_by)
        ENGINES.hold_out(unit, name, row.holder)


def pause(unit: UnitOfWork, rollout_id: int) -> Rollout:
    """Stay where it is. What is watched stays watched: a breach takes it back all the same."""
    return _change(unit, rollout_id, (State.RUNNING,), lambda row: _set_state(row, State.PAUSED, "paused by hand"))


def resume(unit: UnitOfWork, rollout_id: int) -> Rollout:
    """Go on, from what people made of the routes meanwhile."""

    def go_on(row: Rollout) -> None:
        _set_state(row, State.RUNNING, "resumed by hand")
        if row.new_pool:
            _take_routes_as_they_are(row)
            _accept(row)

    return _change(unit, rollout_id, (State.PAUSED,), go_on)


def abort(unit: UnitOfWork, rollout_id: int) -> Rollout:
    """End it, and leave everything as it stands: traffic, and who is held out. Also where the way back cannot be."""

    def end(row: Rollout) -> None:
        _set_state(row, State.ABORTED, "aborted by hand")
        _cancel_waiting(unit, row)
        row.steps.exclude(state__in=_STEP_ENDED).update(state=StepState.SKIPPED, ended_at=timezone.now())

    return _change(unit, rollout_id, OPEN_STATES, end)


def take_back(unit: UnitOfWork, rollout_id: int) -> Rollout:
    """Everything as it was before, in this one write; also of one that was aborted or has failed."""
    row = _locked(rollout_id, _RETURNABLE)
    other = standing.opened_on({row.pool, row.new_pool} - {""})
    if other is not None and other.pk != row.pk:
        raise Conflict(f"{other} is about the same pool now; end it first", code="rollout")
    view = standing.view(row)
    if any(step.evidence.get("published") for step in view.steps):
        raise Conflict("its version is published, and clients have it; publish another one", code="published")
    # Of no step: whether its conditions hold is not asked any more.
    seen = gather(row, replace(view, steps=()), timezone.now())
    row.look_at = timezone.now()
    decision = machine.taken_back(view, seen, f"taken back by {unit.actor.name}")
    _write(unit, row, decision)
    wake_on_commit()
    return row


def carry_out(unit: UnitOfWork, looked_at: Rollout, seen: Facts, decision: Decision) -> None:
    """Write what was decided on what was seen. Raises Outdated where somebody changed it or its routes since, Refused.

    A look can last for seconds, while queries are answered; a person's edit of that time must not be written over.
    """
    row = Rollout.objects.select_for_update().filter(pk=looked_at.pk, writes=looked_at.writes).first()
    if row is None:
        raise Outdated(f"rollout {looked_at.pk} was written meanwhile")
    if decision.moves.routes and routes_naming(row.pool, row.new_pool) != seen.routes:
        raise Outdated(f"routes of rollout {looked_at.pk} were written meanwhile")
    _write(unit, row, decision)


def _write(unit: UnitOfWork, row: Rollout, decision: Decision) -> None:
    before = standing.audited(row)
    moves = decision.moves
    _lock_engines([*moves.hold_out, *moves.put_back, *(act.engine for act in decision.acts)])
    _move(unit, row, decision)
    asked = {act.key: acts.create(unit, _asked(act)).act_id for act in decision.acts}
    if decision.publishes:
        publish(unit, row.pool, row.spec)
    if decision.state == State.FAILED or decision.takes_back:
        _cancel_waiting(unit, row)
    for change in decision.steps:
        _change_step(row, change, asked)
    current = row.steps.filter(state=StepState.RUNNING).first()
    if decision.takes_back:
        last = row.steps.order_by("-index").first()
        current = Step.objects.create(
            rollout=row, index=last.index + 1 if last else 0, kind=TAKE_BACK, state=StepState.RUNNING,
            begun_at=timezone.now(), said=reported_text(decision.said),
        )  # fmt: skip
    if decision.share_permille is not None:
        row.share_permille = decision.share_permille
    row.unanswered_looks = decision.unanswered_looks
    _set_state(row, State(decision.state), decision.said or row.said)
    _save(unit, row, before)
    if current is not None and (decision.moves or decision.publishes):
        _note_change(unit, current)


def _lock_engines(names: Iterable[str]) -> None:
    """In the order in which a node's report locks them, which waits for no write: engines, then nodes, then acts."""
    list(ENGINES.queryset().select_for_update(of=("self",)).filter(name__in=list(names)).order_by("pk"))


def _cancel_waiting(unit: UnitOfWork, row: Rollout) -> None:
    """What no agent has begun yet is asked of none any more."""
    asked = [act for step in row.steps.all() for act in step.evidence.get("acts", {}).values()]
    acts.cancel_waiting(unit, asked)


def _asked(act: NewAct) -> Document:
    return {"engine": act.engine, "action": act.action, "arguments": dict(act.arguments)}


def _move(unit: UnitOfWork, row: Rollout, decision: Decision) -> None:
    moves = decision.moves
    for name in moves.hold_out:
        ENGINES.hold_out(unit, name, row.holder)
    for name, held_by in Engine.objects.filter(name__in=moves.put_back).values_list("name", "held_out_by"):
        # An earlier rollout's, where a spare comes back.
        ENGINES.put_back(unit, name, held_by)
    pair = Pair(row.pool, row.new_pool)
    for name, fields in moves.routes.items():
        changed = ROUTES.update(unit, name, fields)
        row.left = {**row.left, name: left_as(ROUTES.describe(changed), pair)}


def _change_step(row: Rollout, change: StepChange, asked: Mapping[str, str]) -> None:
    step = row.steps.get(index=change.index)
    now = timezone.now()
    if change.state != StepState.WAITING and step.begun_at is None and change.state != StepState.SKIPPED:
        step.begun_at = now
    if change.state in _STEP_ENDED:
        step.ended_at = now
    step.state, step.said = change.state, reported_text(change.said)
    step.evidence = {**step.evidence, **change.evidence}
    if asked:
        step.evidence = {**step.evidence, "acts": {**step.evidence.get("acts", {}), **asked}}
    step.save()


def _note_change(unit: UnitOfWork, step: Step) -> None:
    """So that the step waits until gateways run what was written; known once the unit has compiled it."""

    def note() -> None:
        if unit.patch:
            step.refresh_from_db()
            step.evidence = {**step.evidence, "change": str(unit.change_id)}
            step.save(update_fields=["evidence"])

    unit.finishing.append(note)


def _accept(row: Rollout) -> None:
    """A step that asked whether to go on without its conditions need not ask again."""
    step = row.steps.filter(state=StepState.RUNNING).first()
    if step is not None and step.evidence.get("asked"):
        step.evidence = {**step.evidence, "accepted": True}
        step.save(update_fields=["evidence"])


def _take_routes_as_they_are(row: Rollout) -> None:
    pair = Pair(row.pool, row.new_pool)
    routes = routes_naming(*pair.names)
    row.left = {name: left_as(route, pair) for name, route in routes.items()}
    for name, route in routes.items():
        if name not in row.base and (base := base_of(route, row.pool)) is not None:
            row.base = {**row.base, name: base}


def _change(unit: UnitOfWork, rollout_id: int, states: Iterable[State], change: Callable[[Rollout], None]) -> Rollout:
    row = _locked(rollout_id, states)
    before = standing.audited(row)
    change(row)
    row.look_at = timezone.now()
    _save(unit, row, before)
    wake_on_commit()
    return row


def _locked(rollout_id: int, states: Iterable[State]) -> Rollout:
    row = Rollout.objects.select_for_update().filter(pk=rollout_id).first() or standing.get(rollout_id)
    wanted = list(states)
    if row.state not in wanted:
        able = ", ".join(wanted)
        raise Conflict(f"rollout {rollout_id} is {row.state}; this is for one that is {able}", code="wrong_state")
    return row


def _set_state(row: Rollout, state: State, said: str) -> None:
    row.state, row.said = state, reported_text(said)
    row.ended_at = timezone.now() if state in _ENDED else None


def _save(unit: UnitOfWork, row: Rollout, before: Document) -> None:
    row.writes += 1
    row.save()
    unit.record(NOUN, str(row.pk), before, standing.audited(row))
