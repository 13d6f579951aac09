"""The breaker of a receiver, and its rate. Pure: what an attempt's end does to them, and when the next may begin."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from controlplane.alerts.delivery_plan import Outcome, Reason

PAUSE_FIRST = timedelta(seconds=30)
ALERTNAME = "ReceiverFailing"
_MINUTE = timedelta(minutes=1)
# Of these the receiver knows nothing, or it took what it was asked and refused only that one message.
_SAYS_NOTHING = frozenset({Reason.FAILED_HERE, Reason.INVALID})


class Limits(NamedTuple):
    """After how many failures in a row it opens, and the longest pause until the next probe."""

    failures: int
    pause_max: timedelta


class Breaker(NamedTuple):
    """`open_until` None: closed. Once that is over, one attempt probes it."""

    failures_in_a_row: int = 0
    open_until: datetime | None = None


def after(breaker: Breaker, outcome: Outcome, now: datetime, limits: Limits) -> Breaker:
    """The breaker after an attempt: closed by one that was taken, open for longer with each that was not."""
    if outcome.reason in _SAYS_NOTHING:
        # A probe that ended so must not keep it shut.
        return breaker if breaker.open_until is None else breaker._replace(open_until=now)
    if outcome.reason is Reason.TAKEN:
        return Breaker()
    failures = breaker.failures_in_a_row + 1
    if failures < limits.failures and breaker.open_until is None:
        return Breaker(failures)
    # Beyond this exponent the bound is reached whatever the setting, and the number stays small.
    pause = min(PAUSE_FIRST * 2 ** min(max(failures - limits.failures, 0), 20), limits.pause_max)
    return Breaker(failures, now + max(pause, outcome.retry_after or timedelta(0)))


def labels_of(receiver: str) -> dict[str, str]:
    """Those of the incident that a receiver has while its breaker is open."""
    return {"alertname": ALERTNAME, "receiver": receiver}


def take(full_at: datetime | None, per_minute: int, now: datetime) -> datetime | None:
    """When a bucket of `per_minute` tokens, as many a minute, is full again after one is taken; None: it is empty.

    The generic cell rate algorithm (ITU-T I.371): one time instead of a count and a time.
    """
    refilled = max(full_at or now, now) + _MINUTE // per_minute
    # A whole bucket is a minute away from full when it is empty.
    return refilled if refilled - now <= _MINUTE else None
