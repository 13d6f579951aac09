"""The two moments that a viewer may type in place of a span, and why they may make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django.utils.translation import gettext as _

from controlplane.telemetry.settings_rows import METRICS_KEEP_DAYS, PROMETHEUS_URL
from dashboards.asked import moment_of
from dashboards.spans import LONGEST_SECONDS, SPANS

FIELDS = ("from", "to")
_DAY_SECONDS = 86_400
# Clocks differ, and a link that is made now is opened now.
_AHEAD_SECONDS = 60
_SHOWN_CHARACTERS = 40


def kept_days() -> int:
    """How far back the charts can look. What an external server keeps is not known here."""
    longest_days = LONGEST_SECONDS // _DAY_SECONDS
    return longest_days if PROMETHEUS_URL.read() else min(METRICS_KEEP_DAYS.read(), longest_days)


def refusals(parameters: Mapping[str, str], now_seconds: float) -> dict[str, str]:
    """By field why a time makes no sense; empty where it does, or none is given."""
    texts = {name: parameters.get(name, "").strip() for name in FIELDS}
    # A span that goes on with the clock is shown in any case.
    if parameters.get("span") in SPANS or not any(texts.values()):
        return {}
    moments = {name: moment_of(text) for name, text in texts.items()}
    unread = {name: _unread(text) for name, text in texts.items() if text and moments[name] is None}
    if unread:
        return unread
    first, last = moments["from"], moments["to"]
    if last is not None and last > now_seconds + _AHEAD_SECONDS:
        return {"to": _("This lies in the future. Leave it empty for now.")}
    if first is None:
        return {"from": _("Say from when, too.")}
    if first >= now_seconds:
        return {"from": _("This lies in the future.")}
    if last is not None and first >= last:
        return {"from": _("This must be before the end.")}
    if first < now_seconds - kept_days() * _DAY_SECONDS:
        return {"from": _("Samples are kept for %(days)d days; this lies before them.") % {"days": kept_days()}}
    return {}


def sensible(parameters: Mapping[str, str], now_seconds: float) -> dict[str, str]:
    """The parameters without a time that is refused."""
    left_out = FIELDS if refusals(parameters, now_seconds) else ()
    return {name: text for name, text in parameters.items() if name not in left_out}


def for_field(text: str) -> str:
    """As a browser's field of date and time takes it, in UTC; empty where it is no time."""
    moment = moment_of(text.strip())
    try:
        return "" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return ""


def _unread(text: str) -> str:
    return _("“%(text)s” is no time. Give one such as 2030-01-31T12:00, or Unix seconds.") % {
        "text": text[:_SHOWN_CHARACTERS]
    }
