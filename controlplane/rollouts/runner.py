"""Looking at the rollouts that are open: see, decide, carry out, until there is nothing to do but wait."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.utils import timezone

from controlplane.configs.history import Damaged
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.reported import reported_text
from controlplane.rollouts import facts, machine, standing
from controlplane.rollouts.models import OPEN_STATES, Rollout
from controlplane.rollouts.observed import StepView
from controlplane.rollouts.services import Outdated, carry_out

log = logging.getLogger(__name__)

# Longer than a look with all its queries lasts; then a worker that died is not waited for any more.
CLAIMED = timedelta(seconds=120)
# Decisions that one look may carry out, each of which begins or ends something.
DECISIONS_MAX = 20


def look_at_all() -> int:
    """Look at each rollout that is due; how many were."""
    claimed = standing.claim(timezone.now(), CLAIMED)
    for row in claimed:
        try:
            _look(row.pk)
        except Exception:
            # One that cannot be looked at, for whatever reason, must not keep the others waiting.
            log.exception("rollout %d could not be looked at", row.pk)
        finally:
            Rollout.objects.filter(pk=row.pk).update(look_at=timezone.now())
    return len(claimed)


def _look(rollout_id: int) -> None:
    for _ in range(DECISIONS_MAX):
        row = standing.get(rollout_id)
        if row.state not in OPEN_STATES or not _advance(row):
            return


def _advance(row: Rollout) -> bool:
    """Whether something was written, so that there may be more to do."""
    view, now = standing.view(row), timezone.now()
    try:
        seen = facts.gather(row, view, now)
    except Damaged:
        return False
    decision = machine.decide(view, seen, now)
    if not decision.is_write:
        _note(row, view.current, decision)
        return False
    try:
        _carry_out(row, decision)
    except Outdated as outdated:
        log.info("%s", outdated)
        return False
    except Refused as refused:
        log.warning("rollout %d: refused: %s", row.pk, refused.detail)
        stopped = machine.refused(view, seen, reported_text(refused.detail))
        if not stopped.is_write:
            _note(row, None, stopped)
            return False
        _stop(row, stopped)
    return True


def _stop(row: Rollout, decision: machine.Decision) -> None:
    """Carry out a stop; where the way back is refused as well, the rows say at least that it is to be gone."""
    try:
        _carry_out(row, decision)
    except Refused as refused:
        log.warning("rollout %d: the way back is refused: %s", row.pk, refused.detail)
        _carry_out(row, machine.without_moves(decision))


def _carry_out(row: Rollout, decision: machine.Decision) -> None:
    says = decision.said or decision.state
    with unit_of_work(SYSTEM, reported_text(f"rollout {row.pk}: {says}")) as unit:
        carry_out(unit, row, decision)


def _note(row: Rollout, step: StepView | None, decision: machine.Decision) -> None:
    """Words alone, and how often in a row there was no answer."""
    said = reported_text(decision.said)
    standing.looked(row, unanswered_looks=decision.unanswered_looks, said=said or row.said)
    if step is not None and decision.steps:
        told = reported_text(decision.steps[0].said)
        row.steps.filter(index=step.index).exclude(said=told).update(said=told)
