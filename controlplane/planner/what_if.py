"""What-if runs as rows: begun, read, cancelled, forgotten. Workers carry them out (what_if_work.py)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, NotFound
from controlplane.core.fields import iso
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.planner.models import OPEN_STATES, WhatIfRun, WhatIfState
from controlplane.planner.what_if_asked import asked_of
from wire.canonical import Document

NOUN = "what_if"
# Of several people, each can wait for the other's; what waits in a long line is not waited for.
OPEN_MAX = 20


def begin(unit: UnitOfWork, fields: Mapping[str, Any]) -> WhatIfRun:
    """Ask for a run. `fields`: see WhatIfFields. Raises Refused with every problem, or Conflict where too many wait."""
    asked = asked_of(fields, timezone.now())
    if WhatIfRun.objects.filter(state__in=OPEN_STATES).count() >= OPEN_MAX:
        raise Conflict(f"{OPEN_MAX} what-if runs wait already; wait for one, or cancel one", code="too_many_runs")
    run = WhatIfRun.objects.create(
        owner=unit.actor.name, reason=unit.reason, created_at=timezone.now(), **asked._asdict()
    )
    unit.record(NOUN, str(run.pk), None, describe(run))
    return run


def cancel(unit: UnitOfWork, run_id: int) -> WhatIfRun:
    """End a run; its worker stops within seconds. Raises NotFound, Conflict where it has ended."""
    run = WhatIfRun.objects.select_for_update().filter(pk=run_id).first() or get(run_id)
    if run.state not in OPEN_STATES:
        raise Conflict(f"what-if {run_id} has ended: {run.state}", code="ended")
    before = describe(run)
    run.state, run.ended_at = WhatIfState.CANCELLED, timezone.now()
    run.save(update_fields=["state", "ended_at"])
    unit.record(NOUN, str(run.pk), before, describe(run))
    return run


def get(run_id: int) -> WhatIfRun:
    run = WhatIfRun.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound(f"there is no what-if {run_id}")
    return run


def page(limit: int = PAGE_ROWS, after: int | None = None, *, pool: str = "") -> tuple[list[WhatIfRun], int | None]:
    """Newest first, those below `after`, without their reports; and where the next page starts."""
    rows = WhatIfRun.objects.defer("report", "ask", "calibration").order_by("-pk")
    if pool:
        rows = rows.filter(pool=pool)
    return page_of(rows if after is None else rows.filter(pk__lt=after), limit, lambda run: run.pk)


def describe(run: WhatIfRun) -> Document:
    """What a list says of it."""
    return {
        "id": run.pk,
        "state": run.state,
        "pool": run.pool or None,
        "owner": run.owner,
        "reason": run.reason,
        "assumed": run.assumed,
        "created_at": iso(run.created_at),
        "ended_at": iso(run.ended_at),
        "runs_done": run.runs_done,
        "runs": run.runs or None,
        "error": run.error or None,
    }


def describe_whole(run: WhatIfRun) -> Document:
    """All of it: what was asked, and the report."""
    return {**describe(run), "ask": run.ask, "calibration": run.calibration, "report": run.report}


def prune(before: datetime) -> int:
    """Forget runs that ended before; how many."""
    return WhatIfRun.objects.filter(ended_at__lt=before).delete()[0]
