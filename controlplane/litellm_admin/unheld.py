"""Fields that LiteLLM's calls take and that nothing here would hold to, with what would be right instead.

One that asks for nothing (null, false or empty, as clients' libraries send them) is passed over; any other is
refused by name. Source: LiteLLM's API page, requests of /key and /team.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.core import fields as f
from wire.problems import Problem, pointer

_MONEY = (
    "money is not counted here: leave it out, and bound tokens by the tenant's daily_token_budget (/api/v1/tenants)"
)
_NOTES = "nothing is kept beside a tenant's and a key's own fields: leave it out"
_PEOPLE = "keys are of a team, not of people: leave it out; an admin limits people to tenants under /api/v1/users"
_A_MODEL = "limits are over all models of a team: leave it out, or make a team for the model"
_FLEET = "routes and aliases are of the whole fleet: leave it out, and set them under /api/v1"
_GUARDS = "a key may do what its team may, and there is nothing finer: leave it out"
_LIMITS = "limits are held to as they are given: leave it out"
_ROTATION = "leave it out, and rotate a key with POST /api/v1/keys/ID/rotate"
_NEW_KEY = "keys are made here, of 32 random bytes: leave it out"

_BOTH = {
    **dict.fromkeys(("max_budget", "soft_budget", "budget_duration", "budget_limits", "model_max_budget"), _MONEY),
    **dict.fromkeys(("metadata", "tags"), _NOTES),
    "organization_id": _PEOPLE,
    **dict.fromkeys(("model_rpm_limit", "model_tpm_limit"), _A_MODEL),
    "router_settings": _FLEET,
    **dict.fromkeys(
        ("guardrails", "policies", "prompts", "object_permission", "access_group_ids", "allowed_passthrough_routes"),
        _GUARDS,
    ),
    **dict.fromkeys(("rpm_limit_type", "tpm_limit_type"), _LIMITS),
}
OF_TEAMS: Mapping[str, str] = {
    **_BOTH,
    "team_member_budget": _MONEY,
    **dict.fromkeys(("admins", "members", "members_with_roles", "team_member_permissions"), _PEOPLE),
    "model_aliases": _FLEET,
}
OF_KEYS: Mapping[str, str] = {
    **_BOTH,
    **dict.fromkeys(("budget_id", "spend", "temp_budget_increase", "temp_budget_expiry"), _MONEY),
    **dict.fromkeys(("user_id", "agent_id", "project_id", "send_invite_email"), _PEOPLE),
    **dict.fromkeys(("aliases", "config"), _FLEET),
    **dict.fromkeys(("permissions", "allowed_routes", "allowed_cache_controls", "enforced_params"), _GUARDS),
    **dict.fromkeys(("auto_rotate", "rotation_interval"), _ROTATION),
}
OF_NEW_KEYS: Mapping[str, str] = {**OF_KEYS, "key": _NEW_KEY}


def without_unheld(body: Mapping[str, Any], unheld: Mapping[str, str]) -> dict[str, Any]:
    """The other fields of the body. Raises Refused for what asks for something that would not be held to."""
    asked = [field for field in unheld if field in body and _asks(field, body[field])]
    f.refuse_if([Problem(pointer("/", field), "not_held", unheld[field]) for field in asked])
    return {field: value for field, value in body.items() if field not in unheld}


def _asks(field: str, value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # A budget of 0 lets nothing through; nothing spent is what a new key has.
        return value != 0 or field != "spend"
    return bool(value)
