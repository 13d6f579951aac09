"""Looking at the faults that stand and at the repairs that are open: see, decide, carry out."""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timedelta

from django.utils import timezone

from controlplane.core.errors import Conflict, NotFound, Refused
from controlplane.core.idle import give_back_connection
from controlplane.remediation import beginning, facts, services
from controlplane.remediation.machine import Decision, decide
from controlplane.remediation.models import OPEN_STATES, Remediation, State

log = logging.getLogger(__name__)
# Longer than a look lasts; then a worker that died is not waited for any more.
CLAIMED = timedelta(seconds=15)
# One decision leads to the next, each in a revision of its own.
DECISIONS_MAX = 10


def look_at_all(now: datetime | None = None) -> int:
    """Begin what is to be begun, and take every open repair as far as it comes; how many were looked at."""
    give_back_connection()
    at = now or timezone.now()
    beginning.begin_due(at)
    services.end_alerts_of_ended(at)
    services.give_back_what_a_person_took(at)
    looked = 0
    due = Remediation.objects.filter(state__in=OPEN_STATES, look_at__lte=at).order_by("look_at", "pk")
    for row in due:
        # Of several workers one changes the row.
        if Remediation.objects.filter(pk=row.pk, look_at=row.look_at).update(look_at=at + CLAIMED):
            looked += 1
            _look(row.pk, at)
    return looked


def _look(key: int, now: datetime) -> None:
    try:
        for _ in range(DECISIONS_MAX):
            row = services.get(key)
            if row.state not in OPEN_STATES or not _advance(row, now):
                break
    except services.Outdated as outdated:
        log.info("%s", outdated)
    except Exception:
        # One that cannot be looked at, for whatever reason, must not keep the others waiting.
        log.exception("remediation %d could not be looked at", key)
    Remediation.objects.filter(pk=key).update(look_at=now)


def _advance(row: Remediation, now: datetime) -> bool:
    """Whether it has come further, so that there may be more to do."""
    decision = _decided(row, now)
    try:
        services.carry_out(row, decision, now, decided_again=lambda held: _decided(held, now))
    except Refused as refused:
        log.warning("remediation %d: refused: %s", row.pk, refused.detail)
        if refused.retry_after_seconds is not None or isinstance(refused, Conflict | NotFound):
            # Something else is in the way, or was changed or removed since: what to do then the next look tells.
            waits = Decision(State(row.state), f"waits: {refused.detail}", well_since=row.well_since)
            services.carry_out(row, waits, now)
            return False
        services.carry_out(row, _refused(decision, refused), now)
    return decision.state != row.state or bool(decision.ask)


def _decided(row: Remediation, now: datetime) -> Decision:
    current = services.policy()
    return decide(facts.view_of(row, current), facts.gather(row, current, now), now)


def _refused(decision: Decision, refused: Refused) -> Decision:
    """What cannot be written fails the repair; engines that cannot be put back stay for a person to see."""
    said = f"refused: {refused.detail}"
    if decision.state in OPEN_STATES:
        return Decision(State.FAILED, said)
    return dataclasses.replace(decision, state=State.FAILED, said=said, back=False, uncordon=False)
