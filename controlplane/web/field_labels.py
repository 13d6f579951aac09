"""What fields are called where values stand side by side, as in diffs: as in the forms, and in their units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from controlplane.web.forms.alert import AlertRouteForm, InhibitionForm, SilenceForm, WindowForm
from controlplane.web.forms.cache import CachePolicyForm
from controlplane.web.forms.classes import PriorityClassForm
from controlplane.web.forms.common import PolicyForm, ScaledField, TenantForm
from controlplane.web.forms.diagnosis import LeverPolicyForm
from controlplane.web.forms.engine import EngineForm
from controlplane.web.forms.model import AliasForm, ModelForm
from controlplane.web.forms.people import UserForm
from controlplane.web.forms.pool import PoolForm
from controlplane.web.forms.receiver import FIELDS as RECEIVER_FIELDS
from controlplane.web.forms.receiver import ReceiverForm
from controlplane.web.forms.route import RouteForm
from controlplane.web.forms.rules import AlertRuleForm, DurationField
from controlplane.web.forms.session import SessionLimitsForm
from controlplane.web.forms.writer import WriterForm

_KIND_FIELDS = {name: field for fields in RECEIVER_FIELDS.values() for name, field in fields.items()}
# More than any count has.
_DIGITS_MAX = 20
# By noun, the fields of its form.
FORMS: dict[str, dict[str, forms.Field]] = {
    "alert route": AlertRouteForm.base_fields,
    "alias": AliasForm.base_fields,
    "cache policy": CachePolicyForm.base_fields,
    "cordon policy": PolicyForm.base_fields,
    "engine": EngineForm.base_fields,
    "inhibition": InhibitionForm.base_fields,
    "lever policy": LeverPolicyForm.base_fields,
    "maintenance window": WindowForm.base_fields,
    "metric writer": WriterForm.base_fields,
    "model": ModelForm.base_fields,
    "pool": PoolForm.base_fields,
    "priority class": PriorityClassForm.base_fields,
    "receiver": {**_KIND_FIELDS, **ReceiverForm.base_fields},
    "route": RouteForm.base_fields,
    "rule": AlertRuleForm.base_fields,
    "session limits": SessionLimitsForm.base_fields,
    "silence": SilenceForm.base_fields,
    "tenant": TenantForm.base_fields,
    "user": UserForm.base_fields,
}
# What no form asks for, and what is a box beside other words there. The rest is called as in the REST call.
FIELDS: dict[str, Any] = {
    "acknowledged_at": gettext_lazy("Acknowledged"),
    "acknowledged_by": gettext_lazy("Seen by"),
    "action": gettext_lazy("Act"),
    "agent_version": gettext_lazy("Version of the agent"),
    "api_key_set_at": gettext_lazy("API key set"),
    "arguments": gettext_lazy("Arguments"),
    "blocked": gettext_lazy("Blocked"),
    "breaker": gettext_lazy("Breaker"),
    "cancelling_at": gettext_lazy("Cancelled"),
    "cascade": gettext_lazy("Ask a smaller model first"),
    "condition": gettext_lazy("Condition"),
    "cordon_applied": gettext_lazy("Agent knows of the cordon"),
    "cordon_reason": gettext_lazy("Reason of the cordon"),
    "cordoned": gettext_lazy("Cordoned"),
    "cuda_version": gettext_lazy("Version of CUDA"),
    "driver_version": gettext_lazy("Version of the driver"),
    "due_at": gettext_lazy("Next attempt"),
    "enabled": gettext_lazy("On"),
    "ended_at": gettext_lazy("Ended"),
    "engine": gettext_lazy("Engine"),
    "error": gettext_lazy("Error"),
    "exact": gettext_lazy("Exact cache"),
    "expires_at": gettext_lazy("Expires"),
    "expires_at_ms": gettext_lazy("Expires"),
    "expression": gettext_lazy("Expression (PromQL)"),
    "fallbacks": gettext_lazy("Fallbacks"),
    "gpu_problems": gettext_lazy("Problems of reading the GPUs"),
    "gpu_source": gettext_lazy("GPUs are read through"),
    "groups": gettext_lazy("Groups"),
    "held_out_by": gettext_lazy("Kept out of service by"),
    "host_problems": gettext_lazy("Not seen of the machine"),
    "is_active": gettext_lazy("May log in"),
    "kind": gettext_lazy("Kind"),
    "label": gettext_lazy("Label"),
    "log_ins_ended": gettext_lazy("Log-ins ended"),
    "match": gettext_lazy("Which requests"),
    "mode": gettext_lazy("Mode"),
    "node": gettext_lazy("Node"),
    "node_cordoned": gettext_lazy("Its node is cordoned"),
    "order": gettext_lazy("Order"),
    "owner": gettext_lazy("Given by"),
    "password_changed": gettext_lazy("Password changed"),
    "pins": gettext_lazy("Pinned versions"),
    "place": gettext_lazy("Place in its group"),
    "pools": gettext_lazy("Pools"),
    "previous_expires_at": gettext_lazy("The token before expires"),
    "reason": gettext_lazy("Reason"),
    "reject": gettext_lazy("Or refuse, with this message"),
    "replaced_by": gettext_lazy("Replaced by"),
    "reported_at": gettext_lazy("Reported"),
    "resolved_at": gettext_lazy("Resolved"),
    "retired_at": gettext_lazy("Retired"),
    "revoked_at": gettext_lazy("Revoked"),
    "role": gettext_lazy("Role"),
    "rule": gettext_lazy("Rule"),
    "said": gettext_lazy("What it says"),
    "schema_limits": gettext_lazy("Limits of schemas"),
    "scopes": gettext_lazy("Calls"),
    "secret_made_at": gettext_lazy("Secret made"),
    "semantic": gettext_lazy("Semantic cache"),
    "settings": gettext_lazy("Settings"),
    "simulated": gettext_lazy("Simulated"),
    "state": gettext_lazy("State"),
    "state_at": gettext_lazy("In this state since"),
    "status": gettext_lazy("State"),
    "stops": gettext_lazy("Stops a rollout"),
    "subject": gettext_lazy("Breaker of"),
    "subject_kind": gettext_lazy("Kind"),
    "targets": gettext_lazy("Targets"),
    "temporary": gettext_lazy("Limits for a time"),
    "tenant": gettext_lazy("Tenant"),
    "tenants": gettext_lazy("Tenants"),
    "then": gettext_lazy("Then"),
    "token_made_at": gettext_lazy("Token made"),
    "user": gettext_lazy("User"),
    "version": gettext_lazy("Version"),
    "watch": gettext_lazy("What is watched"),
}
# From which step on the way into a field goes over fields again; what is before has its name from people.
_FIELDS_FROM = {
    "breaker": 1, "cascade": 1, "exact": 1, "match": 1, "schedule": 2, "semantic": 1, "temporary": 1, "watch": 1,
}  # fmt: skip
_WITHIN: dict[str, Any] = {
    "days": gettext_lazy("Days"),
    "from": gettext_lazy("From"),
    "from_minute": gettext_lazy("From"),
    "owner": gettext_lazy("Given by"),
    "reason": gettext_lazy("Reason"),
    "until": gettext_lazy("Until"),
    "until_minute": gettext_lazy("Until"),
}


def place_label(place: Sequence[str], noun: str = "tenant") -> str:
    """The way to a value within its object; its first step is a field, and of some fields later steps are too."""
    fields_from = _FIELDS_FROM.get(place[0], len(place))
    within = (_step_label(noun, place, at) for at in range(fields_from, len(place)))
    return " › ".join([_step_label(noun, place, 0), *place[1:fields_from], *within])


def in_its_unit(place: Sequence[str], noun: str, text: str) -> str:
    """A number as its form has it, in the unit that the label says; all else as it is."""
    field = _field(noun, place, len(place) - 1)
    is_whole = text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX
    return str(field.prepare_value(int(text))) if is_whole and isinstance(field, ScaledField | DurationField) else text


def _step_label(noun: str, place: Sequence[str], at: int) -> str:
    step = place[at]
    if (field := _field(noun, place, at)) is not None:
        return str(field.label)
    return str((_WITHIN.get(step) if at else None) or FIELDS.get(step, step))


def _field(noun: str, place: Sequence[str], at: int) -> forms.Field | None:
    """The form's field for a step of the way. A field within another may be called after both."""
    fields, step = FORMS.get(noun, {}), place[at]
    if at == 0:
        return None if step in FIELDS else fields.get(step)
    if at < _FIELDS_FROM.get(place[0], len(place)):
        return None
    return fields.get(f"{place[0]}_{step}") or fields.get(step)
