"""Named hours with other limits, in the form for people and in that of the configuration."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.nouns import as_set, present
from policy.limits import WEEKDAYS
from wire.canonical import Document
from wire.snapshot import Weekday

HOURS_MAX = 24
CLOCK_TIME_SAYS = "give a time of the day from 00:00 to 23:59"
# What hours may set.
SCHEDULED_LIMITS = ("tpm_limit", "rpm_limit", "max_parallel_requests")


def _in_order(days: list[Weekday]) -> list[Weekday]:
    return sorted(set(days), key=WEEKDAYS.index)


Days = Annotated[list[Weekday], Field(min_length=1, max_length=len(WEEKDAYS)), AfterValidator(_in_order)]
ClockTime = Annotated[
    str,
    f.Like(
        Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$(?!\n)")],
        CLOCK_TIME_SAYS,
    ),
]


class HoursFields(f.Fields):
    """Other limits from `from` to before `until` on the clock of the tenant's `time_zone`; a null one stays as it is.

    Where `until` is not after `from` the hours go on past midnight. `days` are those on which they begin; null: every
    day. Of several that hold the first by (`order`, name) counts.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    order: f.Count = 100
    days: Days | None = None
    begin: ClockTime = Field(alias="from")
    until: ClockTime
    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None

    @model_validator(mode="after")
    def _set_something(self) -> HoursFields:
        if all(getattr(self, limit) is None for limit in SCHEDULED_LIMITS):
            message = f"give at least one of {', '.join(SCHEDULED_LIMITS)}"
            raise PydanticCustomError("one_of", "{message}", {"message": message})
        return self


Schedule = Annotated[dict[f.Name, HoursFields], Field(max_length=HOURS_MAX)]


def whole(schedule: Document) -> Document:
    """The same with every field of each of its hours."""
    return {name: f.read(HoursFields, hours).model_dump() for name, hours in schedule.items()}


def wire_form(schedule: Document) -> Document:
    return {name: _hours_to_wire(hours) for name, hours in schedule.items()}


def from_wire(content: Document) -> Document:
    return {name: _hours_from_wire(hours) for name, hours in content.items()}


def _hours_to_wire(hours: Document) -> Document:
    limits = {limit: hours[limit] for limit in SCHEDULED_LIMITS}
    begin, until = _minute(hours["from"]), _minute(hours["until"])
    times = {"order": hours["order"], "from_minute": begin, "until_minute": until, "days": as_set(hours["days"])}
    return present({**times, **limits})


def _hours_from_wire(content: Document) -> Document:
    fields: dict[str, Any] = {
        name: value for name, value in content.items() if name not in ("from_minute", "until_minute")
    }
    if "days" in content:
        fields["days"] = list(content["days"])
    return {**fields, "from": _clock_time(content["from_minute"]), "until": _clock_time(content["until_minute"])}


def _minute(clock_time: str) -> int:
    hours, minutes = clock_time.split(":")
    return int(hours) * 60 + int(minutes)


def _clock_time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
