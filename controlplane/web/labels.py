"""What things are called on pages: in English in the audit and the configuration, here in the reader's language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from controlplane.web.forms import TenantForm

# What audit entries are about.
NOUNS = {
    gettext_noop("api token"),
    gettext_noop("artifact"),
    gettext_noop("engine"),
    gettext_noop("join token"),
    gettext_noop("key"),
    gettext_noop("model"),
    gettext_noop("node"),
    gettext_noop("override"),
    gettext_noop("pool"),
    gettext_noop("priority class"),
    gettext_noop("rollback"),
    gettext_noop("route"),
    gettext_noop("target"),
    gettext_noop("tenant"),
    gettext_noop("user"),
}
# Who acts, where it is not a person in a browser.
ACTOR_KINDS = {
    gettext_noop("shell"),
    gettext_noop("system"),
    gettext_noop("target"),
    gettext_noop("token"),
}
# As in the forms. What has no form is called as in the REST call.
FIELDS: dict[str, Any] = {
    **{name: field.label for name, field in TenantForm.base_fields.items()},
    "blocked": gettext_lazy("Blocked"),
    "expires_at": gettext_lazy("Expires"),
    "expires_at_ms": gettext_lazy("Expires"),
    "label": gettext_lazy("Label"),
    "tenant": gettext_lazy("Tenant"),
}


def noun_label(noun: str) -> str:
    return _(noun) if noun in NOUNS else noun


def place_label(place: Sequence[str]) -> str:
    """The way to a value within its object; its first step is a field."""
    return " › ".join([str(FIELDS.get(place[0], place[0])), *place[1:]])


def actor_label(kind: str, name: str) -> str:
    """Who acted: a person by name, others with their kind."""
    if kind == "user":
        return name
    return f"{name} ({_(kind) if kind in ACTOR_KINDS else kind})"
