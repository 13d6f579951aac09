"""Looking at the rollouts that are open: see, decide, carry out, until there is nothing to do but wait."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.utils import timezone

from controlplane.configs.history import Damaged
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.reported import one_line, reported_text
from controlplane.rollouts import facts, machine, standing
from controlplane.rollouts.models import OPEN_STATES, Rollout
from controlplane.rollouts.observed import Facts, StepView
from controlplane.rollouts.services import Outdated, carry_out

log = logging.getLogger(__name__)

# About as long as a look with all its queries lasts; then a worker that died is not waited for any more. Two at once
# do no harm: who writes second is Outdated.
CLAIMED = timedelta(seconds=15)
# Decisions that one look may carry out, each of which begins or ends something.
DECISIONS_MAX = 20


def look_at_all() -> int:
    """Look at each rollout that is due; how many were."""
    looked = 0
    for row in standing.due(timezone.now(), CLAIMED):
        try:
            if standing.claim(row, timezone.now(), CLAIMED):
                looked += 1
                _look(row.pk, timezone.now() - row.look_at)
                Rollout.objects.filter(pk=row.pk).update(look_at=timezone.now())
        except Exception:
            # One that cannot be looked at, for whatever reason, must not keep the others waiting.
            log.exception("rollout %d could not be looked at", row.pk)
    return looked


def _look(rollout_id: int, late: timedelta) -> None:
    """`late`: for so long nobody looked, though it was due."""
    row = standing.get(rollout_id)
    if late > CLAIMED or facts.is_deaf(timezone.now()):
        standing.looked(row, deaf_at=timezone.now())
    # What conditions look back over covers as much.
    window = timedelta(seconds=row.spec.get("watch", {}).get("window_seconds", 0))
    for number in range(DECISIONS_MAX):
        row = standing.get(rollout_id)
        if row.state not in OPEN_STATES or not _advance(row, unwatched=not number and late > max(CLAIMED, window)):
            return


def _advance(row: Rollout, *, unwatched: bool) -> bool:
    """Whether something was written, so that there may be more to do."""
    view, now = standing.view(row), timezone.now()
    try:
        seen = facts.gather(row, view, now, unwatched=unwatched)
    except Damaged:
        return False
    decision = machine.decide(view, seen, now)
    if not decision.is_write:
        _note(row, view.current, decision)
        return False
    try:
        _carry_out(row, seen, decision)
    except Outdated as outdated:
        log.info("%s", outdated)
        return False
    except Refused as refused:
        log.warning("rollout %d: refused: %s", row.pk, refused.detail)
        stopped = machine.refused(view, seen, reported_text(refused.detail))
        if not stopped.is_write:
            _note(row, None, stopped)
            return False
        _stop(row, seen, stopped)
    return True


def _stop(row: Rollout, seen: Facts, decision: machine.Decision) -> None:
    """Carry out a stop; where the way back is refused as well, the rows say at least that it is to be gone."""
    try:
        _carry_out(row, seen, decision)
    except Refused as refused:
        log.warning("rollout %d: the way back is refused: %s", row.pk, refused.detail)
        _carry_out(row, seen, machine.without_moves(decision))


def _carry_out(row: Rollout, seen: Facts, decision: machine.Decision) -> None:
    says = decision.said or decision.state
    with unit_of_work(SYSTEM, one_line(f"rollout {row.pk}: {says}")) as unit:
        carry_out(unit, row, seen, decision)


def _note(row: Rollout, step: StepView | None, decision: machine.Decision) -> None:
    """Words alone, and how often in a row there was no answer."""
    said = reported_text(decision.said)
    standing.looked(row, unanswered_looks=decision.unanswered_looks, said=said or row.said)
    if step is not None and decision.steps:
        told = reported_text(decision.steps[0].said)
        row.steps.filter(index=step.index).exclude(said=told).update(said=told)
