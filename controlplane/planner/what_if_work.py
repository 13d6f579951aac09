"""What-if runs in a worker: claimed, carried out by a child process, and kept.

A worker holds a run by a lease that it renews; when it dies the run is begun again by the next, and fails by name when
that happens twice.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from controlplane.core.idle import give_back_connection
from controlplane.core.reported import storable_text
from controlplane.planner import what_if_child
from controlplane.planner.models import WhatIfRun, WhatIfState

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
RENEW = timedelta(seconds=5)
BEGUN_MAX = 2
CALIBRATION_LIMIT_SECONDS = 600.0
ERROR_MAX_CHARACTERS = 2000
# What a run may take beyond its own limit: to start, and to write its report.
SLACK_SECONDS = 30.0


def work(now: datetime, stopping: threading.Event) -> bool:
    """Carry out the run that has waited longest; whether there was one. `stopping`: this worker ends."""
    run = claim(now)
    if run is None:
        return False
    log.info("what-if %d is begun", run.pk)
    try:
        report = _report(run, stopping)
    except what_if_child.Stopped:
        # Cancelled, or taken by another; or this worker ends, and the next begins it anew at once.
        if stopping.is_set():
            _mine(run).update(state=WhatIfState.WAITING, held_until=None, begun=F("begun") - 1)
    except what_if_child.ChildFailed as error:
        _ended(run, WhatIfState.FAILED, error=storable_text(str(error))[:ERROR_MAX_CHARACTERS])
    else:
        _ended(run, WhatIfState.DONE, report=report, runs_done=F("runs"))
    return True


def claim(now: datetime) -> WhatIfRun | None:
    """The next run, of which this worker is now the only one; runs that were begun too often fail."""
    while True:
        found = WhatIfRun.objects.filter(state=WhatIfState.WAITING) | WhatIfRun.objects.filter(
            state=WhatIfState.RUNNING, held_until__lt=now
        )
        run = found.order_by("pk").first()
        if run is None:
            return None
        same = WhatIfRun.objects.filter(pk=run.pk, state=run.state, held_until=run.held_until, begun=run.begun)
        if run.begun >= BEGUN_MAX:
            error = f"the worker that ran it was killed, {run.begun} times; is there enough memory?"
            same.update(state=WhatIfState.FAILED, ended_at=now, error=error)
            continue
        begun = run.begun + 1
        if same.update(state=WhatIfState.RUNNING, held_until=now + LEASE, begun=begun, runs_done=0):
            run.begun = begun
            return run


def _report(run: WhatIfRun, stopping: threading.Event) -> Any:
    heard = _Renewal(run, stopping)
    ask, calibrated = dict(run.ask), None
    if run.calibration is not None:
        calibrated = what_if_child.run("simulator.calibrate", run.calibration, CALIBRATION_LIMIT_SECONDS, heard)
        ask["speed"] = calibrated["speed"]
    limit_seconds = ask.get("limit_seconds", 600) + SLACK_SECONDS
    report = what_if_child.run("simulator.what_if", ask, limit_seconds, heard)
    return {**report, "calibration": calibrated}


class _Renewal:
    """Hears of progress: keeps it, and with it the lease. False once the run is no longer this worker's."""

    def __init__(self, run: WhatIfRun, stopping: threading.Event) -> None:
        self._run, self._stopping = run, stopping
        self._next = timezone.now()

    def __call__(self, progress: dict[str, Any]) -> bool:
        if self._stopping.is_set():
            return False
        now = timezone.now()
        if now < self._next:
            return True
        self._next = now + RENEW
        told = {"runs_done": progress["done"], "runs": progress["of"]} if "done" in progress else {}
        held = _mine(self._run).update(held_until=now + LEASE, **told)
        give_back_connection()
        return bool(held)


def _mine(run: WhatIfRun) -> Any:
    return WhatIfRun.objects.filter(pk=run.pk, state=WhatIfState.RUNNING, begun=run.begun)


def _ended(run: WhatIfRun, state: WhatIfState, **kept: Any) -> None:
    _mine(run).update(state=state, ended_at=timezone.now(), held_until=None, **kept)
    log.info("what-if %d: %s %s", run.pk, state, kept.get("error", ""))
