"""What holds of a tenant at a moment, by its own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from policy.limits import WEEKDAYS, Day, day_of, limits_at, next_change_ms
from wire.snapshot import ScheduledLimits, TemporaryLimits, Tenant

HOUR_MS = 3_600_000
# Two with daylight saving, one of which changes at midnight; one without; one that left out 30 December 2011.
ZONES = ("Europe/Berlin", "America/Santiago", "Europe/Istanbul", "Pacific/Apia", "UTC")


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def hours(begin: str, until: str, tpm_limit: int = 9, order: int = 1, *days: str) -> ScheduledLimits:
    minutes = [int(text[:2]) * 60 + int(text[3:]) for text in (begin, until)]
    named = dict.fromkeys(days, True) if days else UNSET
    return ScheduledLimits(order, minutes[0], minutes[1], days=named, tpm_limit=tpm_limit)  # type: ignore[arg-type]


def berlin(**schedule: ScheduledLimits) -> Tenant:
    return Tenant(tpm_limit=1, rpm_limit=2, time_zone="Europe/Berlin", schedule=schedule)


def test_a_tenant_without_hours_keeps_its_own_limits_for_ever():
    tenant = Tenant(tpm_limit=5, daily_token_budget=7)
    assert limits_at(tenant, 0) == (5, None, None, 7, "", False)
    assert limits_at(tenant, 0).source == "base"
    assert next_change_ms(tenant, 0) is None


def test_hours_hold_from_their_first_minute_to_before_their_last_on_the_tenants_clock():
    tenant = berlin(office=hours("09:00", "18:00"))
    before, first = at("2026-06-01T08:59:59", "Europe/Berlin"), at("2026-06-01T09:00", "Europe/Berlin")
    last = at("2026-06-01T18:00", "Europe/Berlin")
    assert limits_at(tenant, before).tpm_limit == 1
    assert limits_at(tenant, first) == (9, 2, None, None, "office", False)
    assert limits_at(tenant, last - 1).source == "schedule"
    assert limits_at(tenant, last).tpm_limit == 1
    assert next_change_ms(tenant, before) == first
    assert next_change_ms(tenant, first) == last


def test_hours_past_midnight_belong_to_the_day_on_which_they_begin():
    tenant = berlin(night=hours("22:00", "06:00", 9, 1, "friday"))
    # 5 June 2026 is a Friday.
    friday, saturday = at("2026-06-05T22:00", "Europe/Berlin"), at("2026-06-06T06:00", "Europe/Berlin")
    assert [limits_at(tenant, ms).tpm_limit for ms in (friday - 1, friday, saturday - 1, saturday)] == [1, 9, 9, 1]
    assert limits_at(tenant, friday - 17 * HOUR_MS).tpm_limit == 1, "the small hours of Friday are Thursday's"
    assert limits_at(tenant, friday + 24 * HOUR_MS).tpm_limit == 1
    assert next_change_ms(tenant, saturday) == friday + 7 * 24 * HOUR_MS


def test_hours_that_end_when_they_begin_are_a_whole_day():
    tenant = berlin(monday=hours("08:00", "08:00", 9, 1, "monday"))
    monday = at("2026-06-01T08:00", "Europe/Berlin")
    assert limits_at(tenant, monday).tpm_limit == 9
    assert next_change_ms(tenant, monday) == monday + 24 * HOUR_MS


def test_the_first_by_order_and_name_counts():
    tenant = berlin(
        b=hours("00:00", "00:00", 30, 2), c=hours("00:00", "00:00", 20, 1), a=hours("01:00", "02:00", 10, 2)
    )
    assert limits_at(tenant, at("2026-06-01T01:30", "Europe/Berlin")).schedule == "c"
    assert next_change_ms(tenant, 0) is None


def test_what_a_person_gave_goes_before_the_hours_until_it_expires():
    temporary = TemporaryLimits("o", "r", 1000, tpm_limit=50, daily_token_budget=60)
    everyday = ScheduledLimits(1, 0, 0, tpm_limit=9, max_parallel_requests=3)
    tenant = Tenant(tpm_limit=1, rpm_limit=2, schedule={"day": everyday}, temporary=temporary)
    assert limits_at(tenant, 999) == (50, 2, 3, 60, "day", True)
    assert limits_at(tenant, 999).source == "temporary"
    assert limits_at(tenant, 1000) == (9, 2, 3, None, "day", False)
    assert (next_change_ms(tenant, 999), next_change_ms(tenant, 1000)) == (1000, None)


def test_hours_that_the_clock_leaves_out_do_not_happen():
    """29 March 2026: after 01:59:59 the clock in Berlin shows 03:00."""
    tenant = berlin(skipped=hours("02:10", "02:50"), half=hours("02:30", "04:00", 8, 2))
    shown = at("2026-03-29T03:00", "Europe/Berlin")
    assert limits_at(tenant, shown - 1).source == "base"
    assert limits_at(tenant, shown).schedule == "half"
    assert next_change_ms(tenant, shown - 1) == shown
    assert next_change_ms(tenant, shown) == at("2026-03-29T04:00", "Europe/Berlin")


def test_an_hour_that_comes_twice_counts_twice():
    """25 October 2026: after 02:59:59 the clock in Berlin shows 02:00 once more."""
    tenant = berlin(twice=hours("02:00", "02:30"))
    first, again = at("2026-10-25T02:00", "Europe/Berlin"), at("2026-10-25T02:00", "Europe/Berlin", fold=1)
    assert again - first == HOUR_MS
    changes = [first - 1]
    while len(changes) < 5:
        changes.append(next_change_ms(tenant, changes[-1]) or 0)
    assert changes[1:] == [first, first + HOUR_MS // 2, again, again + HOUR_MS // 2]


def test_a_day_has_23_hours_when_daylight_saving_begins_and_25_when_it_ends():
    tenant = berlin()
    for text, length in (("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)):
        day = day_of(tenant, at(f"{text}T12:00", "Europe/Berlin"))
        assert day == Day(at(text, "Europe/Berlin"), at(text, "Europe/Berlin") + length * HOUR_MS)


def test_a_day_without_a_midnight_begins_with_the_first_time_that_is_shown():
    """6 September 2026: in Santiago the clock goes from 23:59:59 to 01:00."""
    tenant = Tenant(time_zone="America/Santiago")
    day = day_of(tenant, at("2026-09-06T12:00", "America/Santiago"))
    assert day.start_ms == at("2026-09-06T01:00", "America/Santiago")
    assert day.end_ms - day.start_ms == 23 * HOUR_MS


def test_a_day_that_the_zone_leaves_out_is_none():
    tenant = Tenant(time_zone="Pacific/Apia")
    day = day_of(tenant, at("2011-12-29T12:00", "Pacific/Apia"))
    assert day.end_ms == at("2011-12-31", "Pacific/Apia")
    assert day.end_ms - day.start_ms == 24 * HOUR_MS
    assert day_of(tenant, day.end_ms).start_ms == day.end_ms


def test_a_day_that_has_begun_goes_on_where_the_clock_shows_the_one_before_once_more():
    """Until 2011 St. John's set its clock back at 00:01, to 23:01."""
    tenant = Tenant(time_zone="America/St_Johns")
    begun = at("2010-11-07T00:00", "America/St_Johns")
    for minutes in (0, 2, 59, 61, 23 * 60):
        assert day_of(tenant, begun + minutes * 60_000).start_ms == begun
    assert day_of(tenant, begun - 1).end_ms == begun


moments = st.datetimes(datetime(2011, 12, 1), datetime(2040, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: int(moment.timestamp() * 1000)
)
minutes = st.integers(0, 1439)
schedules = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.builds(
        ScheduledLimits,
        st.integers(0, 1),
        minutes,
        minutes,
        days=st.one_of(
            st.just(UNSET),
            st.dictionaries(st.sampled_from(WEEKDAYS), st.just(True), min_size=1),
        ),
        tpm_limit=st.integers(0, 5),
    ),
    max_size=3,
)
tenants = st.builds(
    Tenant,
    time_zone=st.sampled_from(ZONES),
    schedule=schedules,
    temporary=st.one_of(
        st.just(UNSET), st.builds(TemporaryLimits, st.just("o"), st.just("r"), moments, tpm_limit=st.integers(0, 9))
    ),
)


@given(tenants, moments, st.integers(0, 10**6))
def test_limits_stay_until_they_change_and_not_beyond(tenant: Tenant, moment: int, part: int):
    change = next_change_ms(tenant, moment)
    last = moment + 14 * 24 * HOUR_MS if change is None else change - 1
    for between in (moment + (last - moment) * part // 10**6, last):
        assert limits_at(tenant, between) == limits_at(tenant, moment)
    if change is not None:
        assert change > moment
        assert limits_at(tenant, change) != limits_at(tenant, moment)


@given(tenants, moments)
def test_hours_are_those_that_the_clock_shows(tenant: Tenant, moment: int):
    clock = datetime.fromtimestamp(moment // 1000, ZoneInfo(tenant.time_zone))
    minute, today, yesterday = clock.hour * 60 + clock.minute, WEEKDAYS[clock.weekday()], WEEKDAYS[clock.weekday() - 1]

    def begun_at(hours: ScheduledLimits) -> str | None:
        length = (hours.until_minute - hours.from_minute - 1) % 1440 + 1
        since = (minute - hours.from_minute) % 1440
        return (today if minute >= hours.from_minute else yesterday) if since < length else None

    holding = [
        (hours.order, name)
        for name, hours in tenant.schedule.items()
        if (day := begun_at(hours)) is not None and (hours.days is UNSET or day in hours.days)
    ]
    assert limits_at(tenant, moment).schedule == min(holding, default=(0, ""))[1]


@given(st.sampled_from([*ZONES, "America/St_Johns", "America/Havana", "Africa/Cairo"]), moments)
def test_days_follow_each_other_without_a_gap_and_hold_their_moments(zone: str, moment: int):
    tenant = Tenant(time_zone=zone)
    day = day_of(tenant, moment)
    assert day.start_ms <= moment < day.end_ms
    assert day_of(tenant, day.start_ms) == day == day_of(tenant, day.end_ms - 1)
    assert day_of(tenant, day.end_ms).start_ms == day.end_ms
    assert day_of(tenant, day.start_ms - 1).end_ms == day.start_ms
    assert timedelta(hours=22) <= timedelta(milliseconds=day.end_ms - day.start_ms) <= timedelta(hours=26)
