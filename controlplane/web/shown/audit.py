"""What the audit's page shows of an entry: what changed, and the page of what was changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from django.urls import NoReverseMatch, reverse

from controlplane.core.changes import Change
from controlplane.core.models import AuditEntry
from controlplane.web.differences import Difference, of_changes

# A rule file may have thousands; the REST call has all.
VALUES_SHOWN = 100
# Pages of one object, by what the audit knows it by: its name or its number.
_OF_ONE = {
    "incident": "web:incident",
    "model": "web:model",
    "node": "web:node",
    "pool": "web:pool",
    "receiver": "web:receiver",
    "rollout": "web:rollout",
    "rule": "web:rule",
    "stage": "web:stage",
    "tenant": "web:tenant",
    "what_if": "web:what_if",
}
_LISTS = {
    "act": "web:acts",
    "alert route": "web:alert_routes",
    "alias": "web:models",
    "api token": "web:api_tokens",
    "artifact": "web:model_files",
    "batch": "web:batches",
    "cache policy": "web:cache_policies",
    "compatibility rule": "web:compatibility",
    "cordon policy": "web:fleet",
    "delivery": "web:receivers",
    "engine": "web:fleet",
    "incident": "web:incidents",
    "inhibition": "web:alert_routes",
    "join token": "web:targets",
    "key": "web:tenants",
    "lever": "web:levers",
    "lever policy": "web:levers",
    "maintenance window": "web:maintenance_windows",
    "metric writer": "web:metric_writers",
    "model": "web:models",
    "model version": "web:versions",
    "node": "web:fleet",
    "override": "web:breakers",
    "pool": "web:pools",
    "priority class": "web:priority_classes",
    "receiver": "web:receivers",
    "recording rules": "web:recording_rules",
    "remediation": "web:repairs",
    "remediation policy": "web:repairs",
    "rollback": "web:revisions",
    "rollout": "web:rollouts",
    "route": "web:routes",
    "rule": "web:rules",
    "session limits": "web:session_limits",
    "silence": "web:silences",
    "stage": "web:stages",
    "target": "web:targets",
    "tenant": "web:tenants",
    "user": "web:users",
    "what_if": "web:what_ifs",
}


class Line(NamedTuple):
    """One entry. `page`: of what was changed, empty where there is none. `more`: values that are left out."""

    entry: AuditEntry
    page: str
    object: Difference | None
    more: int


def lines(entries: Iterable[AuditEntry]) -> list[Line]:
    return [_line(entry) for entry in entries]


def _line(entry: AuditEntry) -> Line:
    found = of_changes([Change(entry.noun, entry.key, entry.before, entry.after)], whole=True)
    if not found:
        return Line(entry, page_of(entry), None, 0)
    values = found[0].values
    shown = replace(found[0], values=values[:VALUES_SHOWN])
    return Line(entry, page_of(entry), shown, max(0, len(values) - VALUES_SHOWN))


def page_of(entry: AuditEntry) -> str:
    """The address of the page of what an entry is about; of what is gone, of the list where it stood."""
    if entry.noun == "key":
        tenant = (entry.after or entry.before or {}).get("tenant")
        return page_of(AuditEntry(noun="tenant", key=tenant or "", action="update"))
    if entry.action != "delete" and (one := _OF_ONE.get(entry.noun)):
        # An old entry may have a name that no page can have any more.
        with contextlib.suppress(NoReverseMatch):
            return reverse(one, args=[entry.key])
    return reverse(_LISTS[entry.noun]) if entry.noun in _LISTS else ""
