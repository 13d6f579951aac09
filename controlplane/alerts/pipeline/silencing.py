"""Which alerts a person has silenced, once or every week. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from controlplane.alerts.pipeline.matchers import Matcher, all_match

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK = 7


@dataclass(frozen=True)
class SilenceSpan:
    """From `starts_at` until `ends_at`, which is no more of it."""

    name: str
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime

    def is_on(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at

    def next_change(self, now: datetime) -> datetime | None:
        return next((moment for moment in (self.starts_at, self.ends_at) if moment > now), None)


@dataclass(frozen=True)
class WeeklyWindow:
    """On each of `days` (0 is Monday) from `starts` to `ends`, by the clocks of `zone`.

    One that does not end after it starts goes on into the next day. Where clocks are put forward over one of its
    times, it starts or ends as many minutes later.
    """

    name: str
    matchers: tuple[Matcher, ...]
    days: frozenset[int]
    starts: time
    ends: time
    zone: ZoneInfo

    def is_on(self, now: datetime) -> bool:
        return any(start <= now < end for start, end in self._spans(now))

    def next_change(self, now: datetime) -> datetime | None:
        return min((moment for span in self._spans(now) for moment in span if moment > now), default=None)

    def _spans(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """Those that can be on at `now`, and those of a week from then. Times are UTC."""
        utc, today = now.tzinfo, now.astimezone(self.zone).date()
        spans = []
        for ahead in range(-1, _WEEK + 1):
            day = today + timedelta(days=ahead)
            if day.weekday() in self.days:
                last = day if self.ends > self.starts else day + timedelta(days=1)
                start = datetime.combine(day, self.starts, self.zone).astimezone(utc)
                spans.append((start, datetime.combine(last, self.ends, self.zone).astimezone(utc)))
        return spans


@dataclass(frozen=True)
class Silencers:
    """What is silent at a time. `on` are those that are; `next_change`: when it may be otherwise."""

    silences: Sequence[SilenceSpan]
    windows: Sequence[WeeklyWindow]
    now: datetime
    silences_on: list[SilenceSpan] = field(init=False)
    windows_on: list[WeeklyWindow] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "silences_on", [each for each in self.silences if each.is_on(self.now)])
        object.__setattr__(self, "windows_on", [each for each in self.windows if each.is_on(self.now)])

    @property
    def next_change(self) -> datetime | None:
        changes = [each.next_change(self.now) for each in self.silences]
        changes += [each.next_change(self.now) for each in self.windows]
        return min((moment for moment in changes if moment is not None), default=None)

    def silences_of(self, labels: Mapping[str, str]) -> list[str]:
        return [each.name for each in self.silences_on if all_match(each.matchers, labels)]

    def windows_of(self, labels: Mapping[str, str]) -> list[str]:
        return [each.name for each in self.windows_on if all_match(each.matchers, labels)]
