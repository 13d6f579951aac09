"""The only writer of maintenance windows: silences that come again every week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline.silencing import DAYS
from controlplane.alerts.services import notifying
from controlplane.alerts.services.matching import ChoosingMatchers, warn_of_muted
from controlplane.alerts.services.standing import window_of
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun
from wire.canonical import Document

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


def _in_order(days: list[Day]) -> list[Day]:
    return sorted(set(days), key=DAYS.index)


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        says = "give the name of a time zone, such as Europe/Istanbul or UTC"
        raise PydanticCustomError("time_zone", "{message}", {"message": says}) from error
    return name


TimeOfDay = Annotated[f.Text, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class MaintenanceWindowFields(f.Fields):
    """On each of `days` from `starts` to `ends` ("HH:MM") by the clocks of `time_zone`. One that does not end after it
    starts goes on into the next day."""

    matchers: ChoosingMatchers
    days: Annotated[list[Day], Field(min_length=1, max_length=7), AfterValidator(_in_order)]
    starts: TimeOfDay
    ends: TimeOfDay
    time_zone: Annotated[f.Text, Field(max_length=64), AfterValidator(_known_zone)] = "UTC"
    enabled: bool = f.default_of(rows.MaintenanceWindow, "enabled")


class MaintenanceWindowNoun(Noun[rows.MaintenanceWindow]):
    noun = "maintenance window"
    row = rows.MaintenanceWindow
    fields = MaintenanceWindowFields

    def describe(self, row: rows.MaintenanceWindow) -> Document:
        return {"name": row.name, **{name: getattr(row, name) for name in MaintenanceWindowFields.model_fields}}

    def touch(self, unit: UnitOfWork, row: rows.MaintenanceWindow, name: str) -> None:
        """Nothing of it is compiled: what fires is looked at anew."""
        warn_of_muted(unit, row.matchers)
        notifying.wake(timezone.now())


MAINTENANCE_WINDOWS = MaintenanceWindowNoun()


def shown(found: Sequence[rows.MaintenanceWindow]) -> list[Document]:
    """The public form with whether it is on, and when that changes."""
    now = timezone.now()
    windows = [(row, window_of(row)) for row in found]
    return [
        {
            **MAINTENANCE_WINDOWS.describe(row),
            "on": row.enabled and window.is_on(now),
            "next_change": f.iso(window.next_change(now)) if row.enabled else None,
        }
        for row, window in windows
    ]
