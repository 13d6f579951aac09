"""The one navigation: every page that stands for itself, by what a person is about to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class Entry(NamedTuple):
    """`section`: of the pages below it, which have no entry of their own. `tenants`: also people of some have it."""

    view: str
    label: Promise
    section: str = ""
    tenants: bool = False


class Link(NamedTuple):
    address: str
    label: Promise
    current: bool
    view: str


GROUPS: tuple[tuple[Promise, tuple[Entry, ...]], ...] = (
    (
        _("Watch"),
        (
            Entry("web:overview", _("Overview"), "overview"),
            Entry("dashboards:home", _("Dashboards"), "dashboard"),
            Entry("web:incidents", _("Incidents"), "incidents"),
            Entry("web:silences", _("Silences"), "silences"),
            Entry("web:diagnosis", _("Diagnosis"), "diagnosis"),
            Entry("web:decisions", _("Decisions"), "decisions", tenants=True),
        ),
    ),
    (
        pgettext_lazy("navigation", "Machines"),
        (
            Entry("web:fleet", _("Fleet"), "fleet"),
            Entry("web:acts", _("Acts"), "acts"),
            Entry("web:repairs", _("Repairs"), "repairs"),
        ),
    ),
    (
        pgettext_lazy("navigation", "Models"),
        (
            Entry("web:models", _("Models"), "models"),
            Entry("web:rollouts", _("Rollouts"), "rollouts"),
            Entry("web:versions", _("Versions"), "versions"),
            Entry("web:model_files", _("Model files"), "model_files"),
            Entry("web:compatibility", _("Compatibility"), "compatibility"),
        ),
    ),
    (
        pgettext_lazy("navigation", "Traffic"),
        (
            Entry("web:tenants", _("Tenants"), "tenants", tenants=True),
            Entry("web:priority_classes", _("Classes"), "priority_classes"),
            Entry("web:pools", _("Pools"), "pools"),
            Entry("web:routes", _("Routes"), "routes"),
            Entry("web:breakers", _("Breakers"), "breakers"),
            Entry("web:cache_policies", _("Caches"), "cache_policies"),
            Entry("web:session_limits", _("Sessions"), "session_limits"),
            Entry("web:batches", _("Batches"), "batches", tenants=True),
            Entry("web:planner", _("Planner"), "planner"),
            Entry("web:what_ifs", _("What-if"), "what_ifs"),
        ),
    ),
    (
        pgettext_lazy("navigation", "Configuration"),
        (
            Entry("web:revisions", _("Revisions"), "revisions"),
            Entry("web:stages", _("Staged publishes"), "stages"),
            Entry("web:targets", _("Targets"), "targets"),
            Entry("web:recording_rules", _("Recording rules"), "recording_rules"),
        ),
    ),
    (
        pgettext_lazy("navigation", "Alerting"),
        (
            Entry("web:rules", _("Rules"), "rules"),
            Entry("web:alert_routes", _("Alert routes"), "alert_routes"),
            Entry("web:receivers", _("Receivers"), "receivers"),
        ),
    ),
    (
        pgettext_lazy("navigation", "People"),
        (
            Entry("web:users", pgettext_lazy("people", "Users"), "users"),
            Entry("web:api_tokens", _("API tokens"), "api_tokens", tenants=True),
            Entry("web:metric_writers", _("Metric writers"), "metric_writers"),
            Entry("web:audit", _("Audit"), "audit", tenants=True),
            Entry("web:sso", _("Single sign-on"), "sso"),
        ),
    ),
)


def links(request: HttpRequest, section: str, *, whole_fleet: bool) -> Iterator[tuple[Promise, list[Link]]]:
    """The groups that this person has pages of, and in them the page that is open, or the one above it."""
    match = request.resolver_match
    view = match.view_name if match is not None else ""
    entries = [(label, [each for each in group if whole_fleet or each.tenants]) for label, group in GROUPS]
    itself = any(each.view == view for _label, group in entries for each in group)
    for label, group in entries:
        found = [
            Link(
                reverse(each.view),
                each.label,
                each.view == view if itself else each.section == section != "",
                each.view,
            )
            for each in group
        ]
        if found:
            yield label, found
