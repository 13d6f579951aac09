"""Stages as rows: the one that runs, those that have ended, what workers saw of one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from controlplane.configs.models import Stage, StageState
from controlplane.core.errors import NotFound
from controlplane.core.fields import iso
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document


def overlay() -> Document | None:
    """What the targets of the stage that runs get, in the form that a revision keeps."""
    stage = running()
    return None if stage is None else {"id": stage.pk, "targets": stage.targets, "patch": stage.patch}


def running() -> Stage | None:
    return Stage.objects.filter(state=StageState.RUNNING).first()


def get(stage_id: int) -> Stage:
    stage = Stage.objects.filter(pk=stage_id).first()
    if stage is None:
        raise NotFound(f"there is no stage {stage_id}")
    return stage


def page(limit: int = PAGE_ROWS, after: int | None = None) -> tuple[list[Stage], int | None]:
    """Newest first, those below `after`; and where the next page starts."""
    rows = Stage.objects.order_by("-pk")
    return page_of(rows if after is None else rows.filter(pk__lt=after), limit, lambda stage: stage.pk)


def describe(stage: Stage) -> Document:
    return {
        "id": stage.pk,
        "state": stage.state,
        "owner": stage.owner,
        "reason": stage.reason,
        "targets": stage.targets,
        "patch": stage.patch,
        "watch": {"expression": stage.expression, "for_seconds": stage.for_seconds} if stage.expression else None,
        "then": "promote" if stage.promotes else "wait",
        "started_at": iso(stage.started_at),
        "expires_at": iso(stage.expires_at),
        "healthy_since": iso(stage.healthy_since),
        "said": stage.said or None,
        "ended_at": iso(stage.ended_at),
    }


def looked(stage: Stage, **seen: Any) -> None:
    """Keep what a look saw, unless the stage has ended meanwhile."""
    Stage.objects.filter(pk=stage.pk, state=StageState.RUNNING).update(**seen)


def claim(now: datetime, lasts: timedelta) -> Stage | None:
    """The stage, if a look at it is due; of several workers one gets it. A worker that dies leaves it to the next, once
    the look could have lasted no longer.
    """
    stage = running()
    if stage is None or stage.look_at > now:
        return None
    mine = Stage.objects.filter(pk=stage.pk, state=StageState.RUNNING, look_at=stage.look_at)
    return stage if mine.update(look_at=now + lasts) else None
