"""Tenants: their weight, what they may use, and their limits."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from django.utils import timezone
from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun, as_set, present
from controlplane.tenants import models as rows
from controlplane.tenants.own_limits import refuse_raises
from controlplane.tenants.services import keys, schedule
from controlplane.tenants.services.cache_policies import CACHE_POLICIES
from controlplane.tenants.services.priority_classes import PRIORITY_CLASSES
from controlplane.tenants.services.schedule import Schedule
from controlplane.tenants.services.session_limits import SESSION_LIMITS
from policy.limits import limits_at, next_change_ms
from wire import snapshot
from wire.canonical import Document
from wire.problems import Problem, pointer
from wire.snapshot_checks import known_time_zone

TEMPORARY_LIMITS = ("tpm_limit", "rpm_limit", "max_parallel_requests", "daily_token_budget")
# The fields of a tenant's entry that are no configuration: a rollback leaves them.
STATE_FIELDS = frozenset({"temporary"})
_LIMITS = ("tpm_limit", "rpm_limit", "max_parallel_requests", "max_tokens_cap", "n_cap", "daily_token_budget")
_NAME_LISTS = ("models", "priority_classes")
# Fields that name what is looked up here.
_REFERENCES = ("priority_classes", "default_priority_class", "session_limits", "cache_policy")
_SCHEMAS = snapshot.SchemaLimits()
# What the configuration need not say.
_DEFAULTS: Document = {
    "display_name": "",
    "time_zone": f.default_of(rows.Tenant, "time_zone"),
    "schedule": {},
    "schema_limits": msgspec.structs.asdict(_SCHEMAS),
    "pins": {},
}


def _known(time_zone: str) -> str:
    if not known_time_zone(time_zone):
        raise PydanticCustomError("time_zone", "give an IANA time zone such as Europe/Istanbul")
    return time_zone


TimeZone = Annotated[
    str, f.Like(snapshot.TimeZone, "give an IANA time zone of 1 to 64 characters"), AfterValidator(_known)
]


def _one_line(text: str) -> str:
    """Marks of direction within a text may stay; those that would turn what stands after it around may not."""
    for character in text:
        if unicodedata.category(character) in _CONTROLS or character in _TURNS_AROUND:
            message = f"U+{ord(character):04X} is a control character; leave it out"
            raise PydanticCustomError("control_character", "{message}", {"message": message})
    return text


DISPLAY_NAME_MAX_CHARACTERS = 120
# Controls, and the ends of lines and paragraphs that Unicode has beside them.
_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNS_AROUND = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
DisplayName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=DISPLAY_NAME_MAX_CHARACTERS),
    AfterValidator(_one_line),
]
Pins = Annotated[dict[f.ModelName, f.ModelName], Field(max_length=f.NAMES_MAX)]


class SchemaLimitsFields(f.Fields):
    """What a JSON schema that constrains an answer may be."""

    max_bytes: f.Positive = _SCHEMAS.max_bytes
    max_depth: f.Positive = _SCHEMAS.max_depth
    max_alternatives: f.Positive = _SCHEMAS.max_alternatives
    max_distinct: f.Positive = _SCHEMAS.max_distinct


class TenantFields(f.Fields):
    """A null limit is no limit; a null list allows all. `models` names models, and aliases for what they stand for.

    `daily_token_budget` is of a calendar day in `time_zone`, on whose clock the hours of `schedule` are read. `pins`:
    what clients call a model → the model, such as a version of it, that this tenant gets for it. `display_name`: what
    people call it, in any script; empty: its name. No gateway is told of it.
    """

    display_name: DisplayName = ""
    weight: f.Positive = f.default_of(rows.Tenant, "weight")
    blocked: bool = f.default_of(rows.Tenant, "blocked")
    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    max_tokens_cap: f.Positive | None = None
    n_cap: f.Positive | None = None
    daily_token_budget: f.Count | None = None
    time_zone: TimeZone = f.default_of(rows.Tenant, "time_zone")
    schedule: Schedule = {}
    models: f.ModelNames | None = None
    priority_classes: f.Names | None = None
    default_priority_class: f.Name | None = None
    session_limits: f.Name | None = None
    cache_policy: f.Name | None = None
    schema_limits: SchemaLimitsFields = SchemaLimitsFields()
    pins: Pins = {}


class TenantNoun(Noun[rows.Tenant]):
    noun = "tenant"
    row = rows.Tenant
    fields = TenantFields
    section = "tenants"
    order: ClassVar[int] = 40
    related = ("session_limits", "cache_policy", "temporary")
    independent = True

    def describe(self, row: rows.Tenant) -> Document:
        return {
            "name": row.name,
            "display_name": row.display_name,
            "weight": row.weight,
            "blocked": row.blocked,
            **{limit: getattr(row, limit) for limit in _LIMITS},
            "time_zone": row.time_zone,
            "schedule": row.schedule,
            "temporary": _temporary_form(row),
            "models": row.models,
            "priority_classes": row.priority_classes,
            "default_priority_class": row.default_priority_class or None,
            "session_limits": row.session_limits.name if row.session_limits else None,
            "cache_policy": row.cache_policy.name if row.cache_policy else None,
            "schema_limits": {**_DEFAULTS["schema_limits"], **row.schema_limits},
            "pins": row.pins,
            "created_at": f.iso(row.created_at),
        }

    def update(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> rows.Tenant:
        """As of every noun; people of some tenants are not told which names there are, even by a refusal."""
        if unit.actor.tenants is not None:
            before = self.describe(self.lock(name))
            refuse_raises(before, {**before, **{field: fields[field] for field in _REFERENCES if field in fields}})
        return super().update(unit, name, fields)

    def assign(self, row: rows.Tenant, values: Document) -> list[Problem]:
        """What it names of models is checked where the whole configuration is; the rest that it names is ours."""
        allowed, default = values["priority_classes"], values["default_priority_class"] or ""
        problems: list[Problem] = []
        # What was checked before holds: a class that is named cannot be deleted.
        if (allowed, default) != (row.priority_classes, row.default_priority_class):
            problems += _class_problems(allowed, default)
        named: Document = {}
        for field, noun in (("session_limits", SESSION_LIMITS), ("cache_policy", CACHE_POLICIES)):
            name = values[field]
            named[field] = None if name is None else noun.referenced(f"/{field}", name, problems)
        if row.pk is None:
            # Django remembers that there are none, where it would look for them once the row is stored.
            temporary_of(row)
        hours = schedule.whole(values["schedule"])
        super().assign(row, {**values, **named, "schedule": hours, "default_priority_class": default})
        return problems

    def wire_form(self, row: rows.Tenant) -> Document:
        described = self.describe(row)
        for name in ("name", "created_at"):
            del described[name]
        for name, default in _DEFAULTS.items():
            if described[name] == default:
                del described[name]
        if "schedule" in described:
            described["schedule"] = schedule.wire_form(described["schedule"])
        described["temporary"] = _temporary_to_wire(row)
        return present({**described, **{name: as_set(described[name]) for name in _NAME_LISTS}})

    def from_wire(self, content: Document) -> Document:
        fields = {name: value for name, value in content.items() if name not in STATE_FIELDS}
        if "schedule" in content:
            fields["schedule"] = schedule.from_wire(content["schedule"])
        return {**fields, **{name: list(content[name]) for name in _NAME_LISTS if name in content}}

    def remove(self, unit: UnitOfWork, name: str, row: rows.Tenant) -> None:
        """Delete the tenant and its keys with it: nobody can use them afterwards."""
        keys.delete_all(unit, row)
        super().remove(unit, name, row)

    def note(self, unit: UnitOfWork, row: rows.Tenant, before: Document) -> None:
        """Note that something beside the row, which its public form shows, was changed."""
        unit.record(self.noun, row.name, before, self.describe(row))
        self.touch(unit, row, row.name)

    def show(self, tenants: Sequence[rows.Tenant]) -> list[Document]:
        """The public forms, and the limits that hold now: where they come from, and until when they do."""
        now_ms = f.epoch_ms(timezone.now())
        return [{**self.describe(row), "limits_now": self._limits_at(row, now_ms)} for row in tenants]

    def _limits_at(self, row: rows.Tenant, unix_ms: int) -> Document:
        tenant = msgspec.convert(self.wire_form(row), snapshot.Tenant)
        limits, until_ms = limits_at(tenant, unix_ms), next_change_ms(tenant, unix_ms)
        return {
            **{limit: getattr(limits, limit) for limit in TEMPORARY_LIMITS},
            "source": limits.source,
            "schedule": limits.schedule or None,
            "until": None if until_ms is None else f.iso(f.from_epoch_ms(until_ms)),
        }


TENANTS = TenantNoun()


def temporary_of(row: rows.Tenant) -> rows.TemporaryLimits | None:
    """The limits that a person gave the tenant, expired ones included until they are forgotten."""
    temporary: rows.TemporaryLimits | None = getattr(row, "temporary", None)
    return temporary


def _temporary_form(row: rows.Tenant) -> Document | None:
    temporary = temporary_of(row)
    if temporary is None:
        return None
    limits = {limit: getattr(temporary, limit) for limit in TEMPORARY_LIMITS}
    ends = {"owner": temporary.owner, "reason": temporary.reason, "expires_at": f.iso(temporary.expires_at)}
    return {**limits, **ends}


def _temporary_to_wire(row: rows.Tenant) -> Document | None:
    temporary, form = temporary_of(row), _temporary_form(row)
    if temporary is None or form is None:
        return None
    del form["expires_at"]
    return present({**form, "expires_at_ms": f.epoch_ms(temporary.expires_at)})


def _class_problems(allowed: list[str] | None, default: str) -> list[Problem]:
    used: dict[str, Any] = {pointer("/priority_classes", name): name for name in allowed or []}
    if default:
        used["/default_priority_class"] = default
    known = PRIORITY_CLASSES.existing(used.values())
    problems = [
        Problem(path, "reference", f"priority class {name!r} does not exist")
        for path, name in used.items()
        if name not in known
    ]
    if default and allowed is not None and default not in allowed:
        message = f"the default {default!r} must be one of the allowed priority_classes"
        problems.append(Problem("/default_priority_class", "one_of", message))
    return problems
