"""Rollouts as rows: found, described, claimed, and in the form that the machine decides on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from controlplane.core.errors import NotFound
from controlplane.core.fields import iso
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.rollouts.models import OPEN_STATES, Rollout, Step
from controlplane.rollouts.observed import RolloutView, StepView
from wire.canonical import Document


def get(rollout_id: int) -> Rollout:
    row = Rollout.objects.filter(pk=rollout_id).first()
    if row is None:
        raise NotFound(f"there is no rollout {rollout_id}")
    return row


def page(limit: int = PAGE_ROWS, after: int | None = None) -> tuple[list[Rollout], int | None]:
    """Newest first, those below `after`; and where the next page starts."""
    rows = Rollout.objects.order_by("-pk")
    return page_of(rows if after is None else rows.filter(pk__lt=after), limit, lambda row: row.pk)


def opened_on(pools: set[str]) -> Rollout | None:
    """The one that is open and about any of these pools."""
    for row in Rollout.objects.filter(state__in=OPEN_STATES):
        if pools & {row.pool, row.new_pool}:
            return row
    return None


def audited(row: Rollout) -> Document:
    """What the audit keeps: all but its steps and when it ended, which the entry's own time says."""
    return {
        "id": row.pk,
        "kind": row.kind,
        "state": row.state,
        "pool": row.pool,
        "new_pool": row.new_pool or None,
        "engines": row.engines,
        "new_engines": row.new_engines,
        "share_permille": row.share_permille,
        "said": row.said or None,
        "spec": row.spec,
        "cost": row.cost,
        "owner": row.owner,
        "reason": row.reason,
        "begun_at": iso(row.begun_at),
    }


def describe(row: Rollout) -> Document:
    """The public form, without its steps."""
    return {**audited(row), "ended_at": iso(row.ended_at)}


def with_steps(row: Rollout) -> Document:
    return {**describe(row), "steps": [describe_step(step) for step in row.steps.all()]}


def describe_step(step: Step) -> Document:
    return {
        "index": step.index,
        "kind": step.kind,
        "arguments": step.arguments,
        "state": step.state,
        "said": step.said or None,
        "begun_at": iso(step.begun_at),
        "ended_at": iso(step.ended_at),
        "evidence": step.evidence,
    }


def view(row: Rollout) -> RolloutView:
    return RolloutView(
        kind=row.kind,
        state=row.state,
        holder=row.holder,
        pool=row.pool,
        new_pool=row.new_pool,
        engines=tuple(row.engines),
        new_engines=tuple(row.new_engines),
        base=row.base,
        left=row.left,
        share_permille=row.share_permille,
        unanswered_looks=row.unanswered_looks,
        steps=tuple(
            StepView(step.index, step.kind, step.arguments, step.state, step.begun_at, step.evidence)
            for step in row.steps.all()
        ),
    )


def due(now: datetime, lasts: timedelta) -> list[Rollout]:
    """Those at which a look is due. One that is claimed for longer than claims last was so before a clock went back."""
    is_due = Q(look_at__lte=now) | Q(look_at__gt=now + lasts)
    return list(Rollout.objects.filter(is_due, state__in=OPEN_STATES).order_by("look_at"))


def claim(row: Rollout, now: datetime, lasts: timedelta) -> bool:
    """Whether this worker alone may look at it now. One that dies leaves it to the next after that long."""
    return bool(Rollout.objects.filter(pk=row.pk, look_at=row.look_at).update(look_at=now + lasts))


def looked(row: Rollout, **seen: Any) -> None:
    """Keep what a look saw, unless the rollout was written meanwhile."""
    Rollout.objects.filter(pk=row.pk, writes=row.writes).update(**seen)
