"""The pipeline: what stands between an incident and its receivers, one stage after the other. Pure but for its end.

    inhibit → silence → snooze → route → dedup → send → record

Grouping is before it: an alert is put into its incident when it begins (grouping.py). Each stage takes the look so far
and gives it on with what it found, and names a reason for it. `send` writes the messages and `record` what was told,
both in the transaction of the look (services/notifying.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from controlplane.alerts.pipeline import dedup
from controlplane.alerts.pipeline.dedup import MESSAGES, News, Reason, Told
from controlplane.alerts.pipeline.grouping import Route, Timing, receivers_of
from controlplane.alerts.pipeline.inhibition import Inhibitors
from controlplane.alerts.pipeline.silencing import Silencers
from controlplane.alerts.pipeline.timing import next_look

Muted = Mapping[str, list[str]]


class Firing(NamedTuple):
    """An alert of the incident that fires. `labels` are those that matchers see."""

    key: int
    labels: Mapping[str, str]
    rank: int


class Listener(NamedTuple):
    """A receiver. One that is off hears nothing, but the end of what it was told waits for it."""

    key: int
    name: str
    enabled: bool
    min_rank: int
    send_resolved: bool


@dataclass(frozen=True)
class Standing:
    """What people and packs have laid down, and what fires elsewhere: the same for every incident of a round."""

    inhibitors: Inhibitors
    silencers: Silencers
    routes: Sequence[Route]
    listeners: Sequence[Listener]

    @property
    def receivers(self) -> frozenset[str]:
        return frozenset(each.name for each in self.listeners)


@dataclass(frozen=True)
class Look:
    """One look at one incident. The lower part is what the stages find."""

    now: datetime
    standing: Standing
    timing: Timing
    firing: Sequence[Firing]
    # Keys of alerts that were told of, have ended, and were not mute then.
    over: frozenset[int]
    told: Mapping[int, Told]
    acknowledged: bool = False
    snoozed_until: datetime | None = None

    # Key of each alert that is mute → why: inhibition, silence, window → names.
    muted: Mapping[int, Muted] = field(default_factory=dict)
    snoozed: bool = False
    # Key of each receiver → the alerts that it may hear of.
    heard: Mapping[int, Sequence[Firing]] = field(default_factory=dict)
    # Key of each receiver → what is done about it.
    reasons: Mapping[int, Reason] = field(default_factory=dict)


def inhibit(look: Look) -> Look:
    """An alert whose cause fires is mute."""
    return _mute(look, "inhibition", look.standing.inhibitors.of)


def silence(look: Look) -> Look:
    """So is one that a person has silenced, or whose maintenance is on."""
    look = _mute(look, "silence", look.standing.silencers.silences_of)
    return _mute(look, "window", look.standing.silencers.windows_of)


def _mute(look: Look, kind: str, names_of: Callable[[Mapping[str, str]], list[str]]) -> Look:
    found = {alert.key: names for alert in look.firing if (names := names_of(alert.labels))}
    return replace(look, muted={**look.muted, **{key: {**look.muted.get(key, {}), kind: found[key]} for key in found}})


def snooze(look: Look) -> Look:
    """Of an incident that a person snoozed nobody is told, but of its end."""
    return replace(look, snoozed=look.snoozed_until is not None and look.now < look.snoozed_until)


def route(look: Look) -> Look:
    """Each receiver hears of the alerts that their routes lead to it, if one of them is grave enough for it."""
    heard: dict[int, list[Firing]] = {listener.key: [] for listener in look.standing.listeners}
    known = look.standing.receivers
    for alert in look.firing:
        if alert.key in look.muted or look.snoozed:
            continue
        names = receivers_of(look.standing.routes, alert.labels, known)
        for listener in look.standing.listeners:
            if listener.enabled and (names is None or listener.name in names):
                heard[listener.key].append(alert)
    grave = {one.key: one.min_rank for one in look.standing.listeners}
    return replace(look, heard={key: alerts if _rank(alerts) >= grave[key] else [] for key, alerts in heard.items()})


def deduplicate(look: Look) -> Look:
    """None is told what it knows, before it is time to repeat it."""
    reasons = {}
    for listener in look.standing.listeners:
        alerts = look.heard[listener.key]
        news = News(
            heard={alert.key for alert in alerts},
            over=look.over,
            rank=_rank(alerts),
            over_whole=not look.firing,
            acknowledged=look.acknowledged,
            snooze_ended_at=look.snoozed_until,
        )
        reasons[listener.key] = dedup.judge(
            look.told.get(listener.key),
            news,
            send_resolved=listener.send_resolved,
            repeat_interval=look.timing.repeat_interval,
            now=look.now,
        )
    return replace(look, reasons=reasons)


STAGES: tuple[Callable[[Look], Look], ...] = (inhibit, silence, snooze, route, deduplicate)


def judged(look: Look) -> Look:
    """The look after all stages."""
    for stage in STAGES:
        look = stage(look)
    return look


def messages(look: Look) -> dict[int, Reason]:
    """Key of each receiver that is written to → the occasion."""
    return {key: reason for key, reason in look.reasons.items() if reason in MESSAGES}


def look_again(look: Look) -> datetime | None:
    """When the incident is looked at next; None: nothing of it fires, and all is said."""
    if not look.firing:
        return None
    told = [each.at for key, each in look.told.items() if key in look.reasons and not look.acknowledged]
    again = [look.now for _ in messages(look)]
    others = (look.standing.silencers.next_change, look.snoozed_until)
    return next_look(look.now, look.timing, again or told, others)


def _rank(alerts: Sequence[Firing]) -> int:
    return max((alert.rank for alert in alerts), default=-1)
