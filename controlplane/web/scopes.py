"""The groups of the REST API that a person's token may be limited to, in words: by the tags of its OpenAPI page."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

SCOPES: dict[str, Promise | str] = {
    "API tokens": _("API tokens"),
    "acts": _("Acts"),
    "alert-routes": _("Alert routes"),
    "aliases": _("Aliases"),
    "artifacts": _("Artifacts"),
    "audit": _("Audit"),
    "batches": _("Batches"),
    "breakers": _("Breakers"),
    "cache-policies": _("Cache policies"),
    "compatibility-rules": _("Compatibility rules"),
    "configuration": _("Configuration"),
    "cordon policy": _("Cordon policy"),
    "decisions": _("Decisions"),
    "diagnosis": _("Diagnosis"),
    "engines": _("Engines"),
    "incidents": _("Incidents"),
    "inhibitions": _("Inhibitions"),
    "keys": _("Keys"),
    "lever-policies": _("Lever policies"),
    "maintenance-windows": _("Maintenance windows"),
    "marks": _("Marks"),
    "metric-writers": _("Metric writers"),
    "metrics": _("Metrics"),
    "model-files": _("Model files"),
    "model-versions": _("Model versions"),
    "models": _("Models"),
    "nodes": _("Nodes"),
    "overrides": _("Overrides"),
    "overview": _("Overview"),
    "planner": _("Planner"),
    "pools": _("Pools"),
    "priority-classes": _("Priority classes"),
    "receivers": _("Receivers"),
    "recording rules": _("Recording rules"),
    "remediation": _("Repairs"),
    "rollouts": _("Rollouts"),
    "routes": _("Routes"),
    "rules": _("Rules"),
    "scaling": _("Scaling"),
    "session-limits": _("Session limits"),
    "silences": _("Silences"),
    "targets": _("Targets"),
    "tenants": _("Tenants"),
    "users": pgettext_lazy("people", "Users"),
}


def scope_label(scope: str) -> str:
    """One that is not known stands as it is."""
    return str(SCOPES.get(scope, scope))
