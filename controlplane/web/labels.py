"""What things are called on pages: in English in the audit and the configuration, here in the reader's language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from controlplane.web.forms import PolicyForm, ReceiverForm, TenantForm

# What audit entries are about.
NOUNS = {
    gettext_noop("api token"),
    gettext_noop("artifact"),
    gettext_noop("cordon policy"),
    gettext_noop("delivery"),
    gettext_noop("engine"),
    gettext_noop("incident"),
    gettext_noop("join token"),
    gettext_noop("key"),
    gettext_noop("model"),
    gettext_noop("node"),
    gettext_noop("override"),
    gettext_noop("pool"),
    gettext_noop("priority class"),
    gettext_noop("receiver"),
    gettext_noop("rollback"),
    gettext_noop("route"),
    gettext_noop("rule"),
    gettext_noop("target"),
    gettext_noop("tenant"),
    gettext_noop("user"),
}
# Lines of an incident's time line.
ENTRY_KINDS = {
    "started": gettext_noop("started"),
    "event": gettext_noop("event"),
    "cordoned": gettext_noop("cordoned"),
    "not_cordoned": gettext_noop("not cordoned"),
    "uncordoned": gettext_noop("uncordoned"),
    "delivered": gettext_noop("delivered"),
    "delivery_failed": gettext_noop("delivery failed"),
    "resolved": gettext_noop("resolved"),
    "severity": gettext_noop("severity"),
}
# Of an incident; a rule's may have any name, which is then shown as it is.
ANNOTATIONS = {
    "summary": gettext_noop("Summary"),
    "description": gettext_noop("Description"),
    "verdict": gettext_noop("Verdict"),
}
# Why an event opened an incident, by the name in `alerts.health`.
VERDICTS = {
    "hardware_fault": gettext_noop("hardware fault"),
    "critical": gettext_noop("critical"),
    "warning": gettext_noop("warning"),
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
    "cordon_reason": gettext_lazy("Reason of the cordon"),
    "cordoned": gettext_lazy("Cordoned"),
    "enabled": gettext_lazy("On"),
    "expires_at": gettext_lazy("Expires"),
    "expires_at_ms": gettext_lazy("Expires"),
    "label": gettext_lazy("Label"),
    "min_nodes": PolicyForm.base_fields["min_nodes"].label,
    "min_severity": ReceiverForm.base_fields["min_severity"].label,
    "resolved_at": gettext_lazy("Resolved"),
    "send_resolved": ReceiverForm.base_fields["send_resolved"].label,
    "state": gettext_lazy("State"),
    "tenant": gettext_lazy("Tenant"),
    "url": ReceiverForm.base_fields["url"].label,
}
# Why a node is not well, by the name in `fleet.health`: how it is said, and whether it needs a person.
HEALTH_REASONS = {
    "never_reported": (False, gettext_noop("its agent has not reported yet")),
    "agent_silent": (True, gettext_noop("its agent is silent")),
    "gpu_lost": (True, gettext_noop("%(what)s off the bus")),
    "gpu_unresponsive": (True, gettext_noop("%(what)s not answering")),
    "gpu_error": (True, gettext_noop("%(what)s answering with errors alone")),
    "gpu_problem": (True, gettext_noop("reading the GPUs: %(what)s")),
    "engine_down": (True, gettext_noop("engine down: %(what)s")),
    "no_gpu": (False, gettext_noop("no GPU: %(what)s")),
    "engine_cordoned": (False, gettext_noop("engine cordoned: %(what)s")),
}
GPU_SOURCES = {"nvml": "NVML", "simulated": gettext_lazy("simulated source"), "none": gettext_lazy("no GPU")}


def health_reason_label(name: str, what: str) -> str:
    known = HEALTH_REASONS.get(name)
    return _(known[1]) % {"what": what} if known else f"{name}: {what}"


def needs_person(reason: str) -> bool:
    return reason not in HEALTH_REASONS or HEALTH_REASONS[reason][0]


def gpu_source_label(name: str) -> str:
    return str(GPU_SOURCES.get(name, name))


def noun_label(noun: str) -> str:
    return _(noun) if noun in NOUNS else noun


def place_label(place: Sequence[str]) -> str:
    """The way to a value within its object; its first step is a field."""
    return " › ".join([str(FIELDS.get(place[0], place[0])), *place[1:]])


def entry_label(kind: str) -> str:
    return _(ENTRY_KINDS[kind]) if kind in ENTRY_KINDS else kind


def annotation_label(name: str) -> str:
    return _(ANNOTATIONS[name]) if name in ANNOTATIONS else name


def annotation_text(name: str, text: str) -> str:
    return _(VERDICTS[text]) if name == "verdict" and text in VERDICTS else text


def actor_label(kind: str, name: str) -> str:
    """Who acted: a person by name, others with their kind."""
    if kind == "user":
        return name
    return f"{name} ({_(kind) if kind in ACTOR_KINDS else kind})"
