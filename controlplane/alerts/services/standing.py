"""What people and packs have laid down about alerts, as the pipeline reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline.grouping import Route, Timing, matched_labels
from controlplane.alerts.pipeline.inhibition import InhibitionRule, Inhibitors
from controlplane.alerts.pipeline.matchers import read
from controlplane.alerts.pipeline.silencing import DAYS, Silencers, SilenceSpan, WeeklyWindow
from controlplane.alerts.pipeline.stages import Listener, Standing
from controlplane.alerts.receivers.registry import channel_of


def standing(now: datetime) -> Standing:
    """All that a look at any incident needs beside the incident's own rows."""
    rules = inhibition_rules()
    return Standing(
        inhibitors=Inhibitors(rules, _sources(rules)), silencers=silencers(now), routes=routes(), listeners=_listeners()
    )


def inhibition_rules() -> list[InhibitionRule]:
    return [
        InhibitionRule(row.name, read(row.source_matchers), read(row.target_matchers), tuple(row.equal))
        for row in rows.Inhibition.objects.filter(enabled=True).order_by("name")
    ]


def _sources(rules: Sequence[InhibitionRule]) -> list[dict[str, str]]:
    """What fires and can keep others mute. In a storm of thousands most can not, by their name."""
    firing = rows.Alert.objects.filter(state=rows.IncidentState.FIRING)
    named = firing.annotate(name=Coalesce(KT("labels__alertname"), Value(""), output_field=TextField()))
    names = [name for name in _names(named) if any(rule.may_be_of(name) for rule in rules)] if rules else []
    found = named.filter(name__in=names).values_list("labels", "severity") if names else []
    return [matched_labels(*row) for row in found]


def _names(named: QuerySet[rows.Alert]) -> list[str]:
    return list(named.order_by().values_list("name", flat=True).distinct())  # type: ignore[misc]


def silencers(now: datetime) -> Silencers:
    silences = rows.Silence.objects.filter(Q(ends_at__gt=now)).order_by("name")
    windows = rows.MaintenanceWindow.objects.filter(enabled=True).order_by("name")
    return Silencers([span_of(row) for row in silences], [window_of(row) for row in windows], now)


def span_of(row: rows.Silence) -> SilenceSpan:
    return SilenceSpan(row.name, read(row.matchers), row.starts_at, row.ends_at)


def window_of(row: rows.MaintenanceWindow) -> WeeklyWindow:
    days = frozenset(DAYS.index(day) for day in row.days)
    starts, ends = time.fromisoformat(row.starts), time.fromisoformat(row.ends)
    return WeeklyWindow(row.name, read(row.matchers), days, starts, ends, ZoneInfo(row.time_zone))


def routes_to_nobody() -> dict[str, list[str]]:
    """Routes that are on and lead to none that is on, of whom one is there at least: name → receivers.

    Where all are gone everyone is told (grouping.receivers_of).
    """
    is_on = {listener.name: listener.enabled for listener in _listeners()}
    leads = rows.AlertRoute.objects.filter(enabled=True).order_by("name").values_list("name", "receivers")
    there = {name: [is_on[each] for each in receivers if each in is_on] for name, receivers in leads}
    return {name: receivers for name, receivers in leads if there[name] and not any(there[name])}


def routes() -> list[Route]:
    """Those that are on, in their order."""
    return [route_of(row) for row in rows.AlertRoute.objects.filter(enabled=True).order_by("order", "name")]


def route_of(row: rows.AlertRoute) -> Route:
    return Route(
        row.name, read(row.matchers), tuple(row.receivers), tuple(row.group_by), timing_of(row), goes_on=row.goes_on
    )


def timing_of(row: rows.AlertRoute) -> Timing:
    return Timing(
        *(timedelta(milliseconds=each) for each in (row.group_wait_ms, row.group_interval_ms, row.repeat_interval_ms))
    )


# Of incidents that no route grouped.
USUAL_TIMING = timing_of(rows.AlertRoute())


def timing_in(routes: Sequence[Route], name: str) -> Timing:
    """Of the incidents of a route; the usual one where it is gone."""
    return next((route.timing for route in routes if route.name == name), USUAL_TIMING)


def _listeners() -> list[Listener]:
    return [
        Listener(row.pk, row.name, row.enabled, rows.Severity(row.min_severity).rank, row.send_resolved)
        for row in rows.Receiver.objects.order_by("name")
        if channel_of(row.kind).takes_incidents
    ]
