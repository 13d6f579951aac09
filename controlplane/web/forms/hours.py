"""A tenant's hours as people type them, one line each: `nights 22:00-06:30 monday,friday tpm_limit=90000 order=10`."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from controlplane.tenants.services.schedule import SCHEDULED_LIMITS, HoursFields
from controlplane.web.forms.inputs import code
from policy.limits import WEEKDAYS

_LINE = re.compile(r"(?P<name>\S+)\s+(?P<begin>[^\s-]+)-(?P<until>\S+)(?P<rest>(?:\s+\S+)*)")
_NUMBER = re.compile(rf"(?P<field>{'|'.join((*SCHEDULED_LIMITS, 'order'))})=(?P<value>[0-9]{{1,16}})")
# The order in which a line is written.
_NUMBERS = (*SCHEDULED_LIMITS, "order")
_ORDER = HoursFields.model_fields["order"].default


class HoursField(forms.CharField):
    """Text ↔ the `schedule` of a tenant. Whether times and names may be is decided by the service."""

    def __init__(self, **options: Any) -> None:
        widget = code(4)
        # Lines are counted as they are typed.
        super().__init__(widget=widget, required=False, strip=False, **options)

    def clean(self, value: Any) -> dict[str, Any]:
        schedule: dict[str, Any] = {}
        for number, line in enumerate(super().clean(value).splitlines(), 1):
            if line.strip():
                name, hours = _read(line.strip(), number)
                if name in schedule:
                    raise ValidationError(_("Line %(line)s: there is “%(name)s” already."), params=_at(number, name))
                schedule[name] = hours
        return schedule

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(line_of, value.items())) if isinstance(value, dict) else value


def line_of(named: tuple[str, dict[str, Any]]) -> str:
    """Named hours in the form of a tenant's public form, as a line; without an order that is the default."""
    name, hours = named
    days = [",".join(hours["days"])] if hours["days"] else []
    set_here = {**hours, "order": None} if hours["order"] == _ORDER else hours
    numbers = [f"{field}={set_here[field]}" for field in _NUMBERS if set_here[field] is not None]
    return " ".join([name, f"{hours['from']}-{hours['until']}", *days, *numbers])


def named_hours(path: str) -> str:
    """Which hours a problem is about, by its path such as /schedule/nights/from; empty where it is about all."""
    _, _, within = path.partition("schedule/")
    return within.split("/")[0]


def _read(line: str, number: int) -> tuple[str, dict[str, Any]]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValidationError(_("Line %(line)s: write a name, then a time as 22:00-06:30."), params=_at(number))
    hours: dict[str, Any] = {name: field.default for name, field in HoursFields.model_fields.items()}
    del hours["begin"]
    hours |= {"from": match["begin"], "until": match["until"]}
    for word in match["rest"].split():
        if found := _NUMBER.fullmatch(word):
            hours[found["field"]] = int(found["value"])
        elif set(days := word.split(",")) <= set(WEEKDAYS):
            hours["days"] = sorted(set(days), key=WEEKDAYS.index)
        else:
            raise ValidationError(
                _("Line %(line)s: “%(name)s” is neither days as monday,friday nor one of %(fields)s with a number."),
                params={**_at(number, word), "fields": ", ".join(f"{field}=" for field in _NUMBERS)},
            )
    return match["name"], hours


def _at(number: int, name: str = "") -> dict[str, Any]:
    return {"line": number, "name": name}
