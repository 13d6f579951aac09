"""What a tenant may take at a moment: its own limits, others in named hours, and those that a person gave for a time.

Hours are read off the clock of the tenant's time zone: limits of 09:00 to 18:00 hold while that clock shows a time
from 09:00 to before 18:00, whatever was done to it. On the day that daylight saving begins the hours that the clock
leaves out do not happen; on the day that it ends an hour that comes twice counts twice. Hours that go on past midnight
belong to the day on which they begin. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import UNSET, UnsetType

from wire.snapshot import ScheduledLimits, TemporaryLimits, Tenant, Weekday

WEEKDAYS: tuple[Weekday, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = timedelta(days=1)
_DAY_SECONDS = 86_400
# A schedule comes round each week; what the clock leaves out or repeats in one week is as usual in the next.
_LOOK_AHEAD_DAYS = 15


class Limits(NamedTuple):
    """What holds; None is no limit.

    `schedule`: the name of the hours that hold, or "". `temporary`: limits that a person gave hold, before the hours'.
    """

    tpm_limit: int | None
    rpm_limit: int | None
    max_parallel_requests: int | None
    daily_token_budget: int | None
    schedule: str
    temporary: bool

    @property
    def source(self) -> Literal["base", "schedule", "temporary"]:
        """Where the last word on them comes from."""
        return "temporary" if self.temporary else "schedule" if self.schedule else "base"


class Day(NamedTuple):
    """A calendar day of a time zone: 23 to 25 hours, from `start_ms` to before `end_ms`."""

    start_ms: int
    end_ms: int


def limits_at(tenant: Tenant, unix_ms: int) -> Limits:
    """What holds of a tenant whose time zone is known (`wire.snapshot_checks.tenant_problems`)."""
    hours = _hours_at(tenant, unix_ms // 1000) if tenant.schedule else ""
    scheduled = tenant.schedule.get(hours)
    temporary = None if tenant.temporary is UNSET or tenant.temporary.expires_at_ms <= unix_ms else tenant.temporary
    tpm, rpm, parallel = tenant.tpm_limit, tenant.rpm_limit, tenant.max_parallel_requests
    budget = tenant.daily_token_budget
    others: tuple[ScheduledLimits | TemporaryLimits | None, ...] = (scheduled, temporary)
    for other in others:
        if other is not None:
            tpm, rpm = _instead(tpm, other.tpm_limit), _instead(rpm, other.rpm_limit)
            parallel = _instead(parallel, other.max_parallel_requests)
    if temporary is not None:
        budget = _instead(budget, temporary.daily_token_budget)
    return Limits(_known(tpm), _known(rpm), _known(parallel), _known(budget), hours, temporary is not None)


def next_change_ms(tenant: Tenant, unix_ms: int) -> int | None:
    """The first moment after `unix_ms` at which other limits hold than at it; None: as far as is known they stay."""
    moments: list[int] = []
    if (temporary := tenant.temporary) is not UNSET and temporary.expires_at_ms > unix_ms:
        moments.append(temporary.expires_at_ms)
    if tenant.schedule and (at_second := _hours_end(tenant, unix_ms // 1000)) is not None:
        moments.append(at_second * 1000)
    return min(moments, default=None)


def day_of(tenant: Tenant, unix_ms: int) -> Day:
    """The calendar day of the tenant's time zone that a moment lies in.

    It begins when its clock first shows 00:00 or, where that is left out, the next time after it.
    """
    zone = _zone(tenant.time_zone)
    second = unix_ms // 1000
    day = datetime.fromtimestamp(second, zone).date()
    # Where clocks are set back over midnight, a day that has begun shows the one before it once more.
    if _midnight(zone, day + _DAY) <= second:
        day += _DAY
    start, following = _midnight(zone, day), day + _DAY
    # A zone that moves over the date line leaves a day out.
    while (end := _midnight(zone, following)) <= second:
        following += _DAY
    return Day(start * 1000, end * 1000)


@lru_cache(maxsize=1000)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _instead(limit: int | UnsetType, other: int | UnsetType) -> int | UnsetType:
    return limit if other is UNSET else other


def _known(limit: int | UnsetType) -> int | None:
    return None if limit is UNSET else limit


def _hours_at(tenant: Tenant, second: int) -> str:
    """The name of the scheduled limits that hold; "" for none. The first by (`order`, name) counts."""
    clock = datetime.fromtimestamp(second, _zone(tenant.time_zone))
    minute, weekday = clock.hour * 60 + clock.minute, clock.weekday()
    holding = ((hours.order, name) for name, hours in tenant.schedule.items() if _includes(hours, minute, weekday))
    return min(holding, default=(0, ""))[1]


def _includes(hours: ScheduledLimits, minute: int, weekday: int) -> bool:
    if hours.from_minute < hours.until_minute:
        return hours.from_minute <= minute < hours.until_minute and _begins_on(hours, weekday)
    return (minute >= hours.from_minute and _begins_on(hours, weekday)) or (
        minute < hours.until_minute and _begins_on(hours, weekday - 1)
    )


def _begins_on(hours: ScheduledLimits, weekday: int) -> bool:
    return hours.days is UNSET or WEEKDAYS[weekday] in hours.days


def _hours_end(tenant: Tenant, second: int) -> int | None:
    """The first second after `second` at which the schedule says something else."""
    now = _hours_at(tenant, second)
    return next((moment for moment in _edges(tenant, second) if _hours_at(tenant, moment) != now), None)


def _edges(tenant: Tenant, second: int) -> Iterator[int]:
    """Seconds after `second` at which hours may begin or end, in order."""
    zone = _zone(tenant.time_zone)
    minutes = {minute for hours in tenant.schedule.values() for minute in (hours.from_minute, hours.until_minute)}
    for start in range(second, second + _LOOK_AHEAD_DAYS * _DAY_SECONDS, _DAY_SECONDS):
        end = start + _DAY_SECONDS
        found = {_clock_change(zone, start, end)} if _offset(zone, start) != _offset(zone, end) else set()
        day, last = (datetime.fromtimestamp(at, zone).date() for at in (start, end))
        while day <= last:
            for minute in minutes:
                shown = datetime.combine(day, time(minute // 60, minute % 60), zone)
                # A time that the clock shows twice; where it shows it once both are the same.
                found |= {int(shown.timestamp()), int(shown.replace(fold=1).timestamp())}
            day += _DAY
        yield from sorted(moment for moment in found if start < moment <= end)


def _midnight(zone: ZoneInfo, day: date) -> int:
    """The second at which the day begins."""
    shown = datetime.combine(day, time(), zone)
    first, second = int(shown.timestamp()), int(shown.replace(fold=1).timestamp())
    # Of a time that the clock leaves out, the two readings lie around the moment at which it is set on.
    return first if first <= second else _clock_change(zone, second, first)


def _clock_change(zone: ZoneInfo, start: int, end: int) -> int:
    """The second at which the clock was set, between two seconds of which it has another offset."""
    before = _offset(zone, start)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _offset(zone, middle) == before else (start, middle)
    return end


def _offset(zone: ZoneInfo, second: int) -> timedelta | None:
    return datetime.fromtimestamp(second, zone).utcoffset()
