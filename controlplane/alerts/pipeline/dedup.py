"""Whether a receiver is told, and why. Pure.

As Alertmanager's DedupStage (notify/notify.go, `needsUpdate`): of what is new, or over, or was last said too long ago.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Reason(StrEnum):
    """Why a message is written to a receiver, or why none is."""

    # A message, of this occasion.
    FIRST = "first"
    CHANGED = "changed"
    REPEAT = "repeat"
    RESOLVED = "resolved"
    # None.
    TOLD_ALREADY = "told_already"
    ACKNOWLEDGED = "acknowledged"
    # All of it is mute, too mild, or leads elsewhere.
    NOTHING_HEARD = "nothing_heard"
    NEVER_TOLD = "never_told"
    NOT_WANTED = "not_wanted"


MESSAGES = frozenset({Reason.FIRST, Reason.CHANGED, Reason.REPEAT, Reason.RESOLVED})


@dataclass(frozen=True)
class Told:
    """What a receiver was last told: the keys of the alerts that fired, and the rank of the gravest."""

    resolved: bool
    alerts: frozenset[int]
    rank: int
    at: datetime


@dataclass(frozen=True)
class News:
    """What there is to tell a receiver now. `heard` fire and are not mute; `over` have ended, and were not mute then.

    `over_whole`: nothing of the incident fires. `snooze_ended_at`: when a person wanted to be told again.
    """

    heard: Set[int]
    over: Set[int]
    rank: int
    over_whole: bool
    acknowledged: bool
    snooze_ended_at: datetime | None = None


def judge(told: Told | None, news: News, *, send_resolved: bool, repeat_interval: timedelta, now: datetime) -> Reason:
    """Whether a receiver of the incident is told, and why."""
    if news.over_whole:
        if told is None:
            return Reason.NEVER_TOLD
        if told.resolved:
            return Reason.TOLD_ALREADY
        return Reason.RESOLVED if send_resolved else Reason.NOT_WANTED
    if not news.heard:
        return Reason.NOTHING_HEARD
    if told is None:
        return Reason.FIRST
    if news.heard - told.alerts or news.rank > told.rank or (send_resolved and told.alerts & news.over):
        return Reason.CHANGED
    if news.snooze_ended_at is not None and told.at < news.snooze_ended_at <= now:
        return Reason.REPEAT
    if news.acknowledged:
        return Reason.ACKNOWLEDGED
    return Reason.REPEAT if now - told.at >= repeat_interval else Reason.TOLD_ALREADY
