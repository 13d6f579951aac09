"""Which alerts share an incident, who is told of them, and how often. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from controlplane.alerts.pipeline.matchers import Matcher, all_match
from wire.canonical import content_hash

Labels = Mapping[str, str]
# Alertmanager's way of saying that each alert is a group of its own.
ALL_LABELS = "..."
# By what the alerts of rules are grouped where no route says.
RULE_GROUP_BY = ("alertname", "pool")


@dataclass(frozen=True)
class Timing:
    """How long a new group waits for its others, the least time between two messages of news, and between two that say
    the same."""

    group_wait: timedelta
    group_interval: timedelta
    repeat_interval: timedelta


@dataclass(frozen=True)
class Route:
    name: str
    matchers: tuple[Matcher, ...]
    receivers: tuple[str, ...]
    group_by: tuple[str, ...]
    timing: Timing
    goes_on: bool


@dataclass(frozen=True)
class Group:
    """What makes alerts one incident. `route` is empty where none matched."""

    route: str
    labels: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex. Without a route it is that of the labels alone."""
        return content_hash({"route": self.route, "labels": self.labels} if self.route else self.labels)


def matching(routes: Sequence[Route], labels: Labels) -> list[Route]:
    """The routes of an alert, in their order: up to the first that matches and does not go on."""
    found = []
    for route in routes:
        if all_match(route.matchers, labels):
            found.append(route)
            if not route.goes_on:
                break
    return found


def matched_labels(labels: Labels, severity: str) -> dict[str, str]:
    """What matchers see of an alert: its labels, and how grave it is, which an event's do not have."""
    return {**labels, "severity": severity}


def group_of(routes: Sequence[Route], labels: Labels, severity: str, source: str) -> Group:
    """The group of an alert: by its first route's labels, else by what is usual for its source.

    A label that it does not have is none of the group's.
    """
    seen = matched_labels(labels, severity)
    first = next(iter(matching(routes, seen)), None)
    usual = RULE_GROUP_BY if source == "rule" else (ALL_LABELS,)
    by = usual if first is None else first.group_by
    kept = labels if ALL_LABELS in by else {name: seen[name] for name in by if name in seen}
    return Group(first.name if first else "", dict(kept))


def receivers_of(routes: Sequence[Route], labels: Labels, known: frozenset[str]) -> frozenset[str] | None:
    """Names of the receivers that an alert goes to; None: to every one, because no route says otherwise.

    A route whose receivers are all gone says nothing: else a name that was taken away would cost a page. One that
    names none means it.
    """
    found = matching(routes, labels)
    named = {name for route in found for name in route.receivers}
    if not found or (named and not named & known):
        return None
    return frozenset(named & known)
