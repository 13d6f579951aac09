"""Bodies of LiteLLM's calls, read into the fields of tenants and keys."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.json_text import not_json, read_json
from controlplane.litellm_admin import unheld
from controlplane.tenants.models import Tenant
from wire.canonical import Document
from wire.problems import Problem, pointer

LIMITS = ("tpm_limit", "rpm_limit", "max_parallel_requests")
KEYS_A_CALL_MAX = 100
# LiteLLM's word for the models of the key's team.
TEAMS_MODELS = ["all-team-models"]
NEVER = "-1"
_DURATION = re.compile(r"[1-9][0-9]{0,8}[smhdw]")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _known_duration(text: str) -> str:
    if text != NEVER and not _DURATION.fullmatch(text):
        raise PydanticCustomError("duration", "give a number and s, m, h, d or w, such as 30d, or -1 for no end")
    return text


Duration = Annotated[str, AfterValidator(_known_duration)]
KeyText = Annotated[f.Text, Field(min_length=1, max_length=200)]
Texts = Annotated[list[KeyText], Field(min_length=1, max_length=KEYS_A_CALL_MAX)]


class TeamFields(f.Fields):
    """Fields of a team that a tenant has. Null limits are no limits; no `models` are all."""

    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    models: f.ModelNames | None = None
    blocked: bool | None = None


class NewTeam(TeamFields):
    team_id: f.Name | None = None
    team_alias: f.Name | None = None


class ChangedTeam(TeamFields):
    team_id: f.Name
    team_alias: f.Name | None = None


class KeyFields(f.Fields):
    """Fields of a key. Limits and models are its team's: they may be said again, not otherwise."""

    key_alias: Annotated[f.Text, Field(max_length=100)] | None = None
    duration: Duration | None = None
    blocked: bool | None = None
    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    models: f.ModelNames | None = None
    key_type: Literal["llm_api"] | None = None


class NewKey(KeyFields):
    team_id: f.Name


class ChangedKey(KeyFields):
    key: KeyText
    team_id: f.Name | None = None


class OneKey(f.Fields):
    key: KeyText


class SomeKeys(f.Fields):
    keys: Texts | None = None
    key_aliases: Texts | None = None


class SomeTeams(f.Fields):
    team_ids: Annotated[list[f.Name], Field(min_length=1, max_length=KEYS_A_CALL_MAX)]


def body_of(request: HttpRequest) -> dict[str, Any]:
    """The JSON object of a request. Raises Malformed."""
    try:
        body = read_json(request.body)
    except (ValueError, RecursionError) as error:
        raise not_json() from error
    if not isinstance(body, dict):
        raise not_json("it is no object")
    return body


def new_team(body: dict[str, Any]) -> tuple[str, Document]:
    """Name and fields of a tenant. Raises Refused."""
    team = f.read(NewTeam, unheld.without_unheld(body, unheld.OF_TEAMS))
    name = team.team_id or team.team_alias
    if name is None:
        raise f.refused([Problem("/team_id", "required", "give the team's name, as team_id or team_alias")])
    _check_alias(team.team_alias, name)
    return name, _tenant_fields(team)


def changed_team(body: dict[str, Any]) -> tuple[str, Document]:
    """Name of a tenant and its fields that change. Raises Refused."""
    team = f.read(ChangedTeam, unheld.without_unheld(body, unheld.OF_TEAMS))
    _check_alias(team.team_alias, team.team_id)
    return team.team_id, _tenant_fields(team)


def _check_alias(alias: str | None, name: str) -> None:
    if alias not in (None, name):
        f.refuse_if([Problem("/team_alias", "not_held", f"a team has one name: leave it out, or give {name!r}")])


def _tenant_fields(team: TeamFields) -> Document:
    fields = team.model_dump(exclude_unset=True, exclude={"team_id", "team_alias"})
    if "models" in fields:
        fields["models"] = fields["models"] or None
    if team.blocked is None:
        fields.pop("blocked", None)
    return fields


def key_fields(key: KeyFields, tenant: Tenant) -> Document:
    """The fields of a tenant's key that are given. Raises Refused where limits are not its team's."""
    _check_limits(key, tenant)
    fields: Document = {}
    given = key.model_fields_set
    if "key_alias" in given:
        fields["label"] = key.key_alias or ""
    if key.blocked is not None:
        fields["blocked"] = key.blocked
    if key.duration is not None:
        fields["expires_at"] = f.iso(_end(key.duration, timezone.now()))
    return fields


def _check_limits(key: KeyFields, tenant: Tenant) -> None:
    teams: Document = {name: getattr(tenant, name) for name in (*LIMITS, "models")}
    f.refuse_if(
        [
            Problem(pointer("/", name), "not_held", _of_the_team(tenant.name, has))
            for name, has in teams.items()
            if getattr(key, name) not in (None, [], has, TEAMS_MODELS)
        ]
    )


def _of_the_team(name: str, has: object) -> str:
    shown = "none" if has is None else has
    return f"keys share what their team has, which for {name} is {shown}: leave it out, or POST /team/update"


def _end(duration: str, now: datetime) -> datetime | None:
    if duration == NEVER:
        return None
    try:
        return now + timedelta(seconds=int(duration[:-1]) * _SECONDS[duration[-1]])
    except OverflowError as error:
        raise f.refused([Problem("/duration", "range", "give a duration that ends before the year 9999")]) from error
