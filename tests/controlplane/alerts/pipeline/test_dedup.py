"""Whether a receiver is told, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.alerts.pipeline.dedup import News, Reason, Told, judge

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
REPEAT = timedelta(hours=4)
HOUR = timedelta(hours=1)


def told(*alerts: int, ago: timedelta = HOUR, rank: int = 1, resolved: bool = False) -> Told:
    return Told(resolved, frozenset(alerts), rank, NOW - ago)


def news(*heard: int, over: tuple[int, ...] = (), **more: Any) -> News:
    fields = {"rank": 1, "over_whole": False, "acknowledged": False, **more}
    return News(frozenset(heard), frozenset(over), **fields)


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (None, news(1), Reason.FIRST),
        (None, news(), Reason.NOTHING_HEARD),
        (told(1), news(1), Reason.TOLD_ALREADY),
        (told(1), news(1, 2), Reason.CHANGED),
        (told(1, 2), news(2, over=(1,)), Reason.CHANGED),
        # Mute now, and not over: nothing to tell.
        (told(1, 2), news(2), Reason.TOLD_ALREADY),
        (told(1), news(rank=-1), Reason.NOTHING_HEARD),
        (told(1), news(1, rank=2), Reason.CHANGED),
        (told(1, rank=2), news(1, rank=1), Reason.TOLD_ALREADY),
        (told(1, ago=REPEAT), news(1), Reason.REPEAT),
        (told(1, ago=REPEAT), news(1, acknowledged=True), Reason.ACKNOWLEDGED),
        (told(1), news(1, 2, acknowledged=True), Reason.CHANGED),
        (told(1), news(1, snooze_ended_at=NOW), Reason.REPEAT),
        (told(1), news(1, snooze_ended_at=NOW + HOUR), Reason.TOLD_ALREADY),
        (told(1, ago=timedelta(0)), news(1, snooze_ended_at=NOW), Reason.TOLD_ALREADY),
        (told(1), news(over=(1,), over_whole=True), Reason.RESOLVED),
        (told(resolved=True), news(over_whole=True), Reason.TOLD_ALREADY),
        (None, news(over_whole=True), Reason.NEVER_TOLD),
    ],
)
def test_it_is_told_what_is_new_or_over_or_was_last_said_too_long_ago(
    before: Told | None, now: News, reason: Reason
) -> None:
    assert judge(before, now, send_resolved=True, repeat_interval=REPEAT, now=NOW) is reason


def test_one_that_wants_no_ends_hears_of_none() -> None:
    def judged(before: Told, now: News) -> Reason:
        return judge(before, now, send_resolved=False, repeat_interval=REPEAT, now=NOW)

    assert judged(told(1), news(over=(1,), over_whole=True)) is Reason.NOT_WANTED
    assert judged(told(1, 2), news(2, over=(1,))) is Reason.TOLD_ALREADY
    assert judged(told(1, 2), news(2, 3, over=(1,))) is Reason.CHANGED
