"""Tenants: their weight, what they may use, and their limits."""

from __future__ import annotations

from typing import ClassVar

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun, as_set, present
from controlplane.tenants import models as rows
from controlplane.tenants.services import keys
from controlplane.tenants.services.priority_classes import PRIORITY_CLASSES
from wire.canonical import Document
from wire.problems import Problem, pointer

_LIMITS = ("tpm_limit", "rpm_limit", "max_parallel_requests", "max_tokens_cap", "n_cap")
_NAME_LISTS = ("models", "priority_classes")


class TenantFields(f.Fields):
    """A null limit is no limit; a null list allows all."""

    weight: f.Positive = f.default_of(rows.Tenant, "weight")
    blocked: bool = f.default_of(rows.Tenant, "blocked")
    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    max_tokens_cap: f.Positive | None = None
    n_cap: f.Positive | None = None
    models: f.ModelNames | None = None
    priority_classes: f.Names | None = None
    default_priority_class: f.Name | None = None


class TenantNoun(Noun[rows.Tenant]):
    noun = "tenant"
    row = rows.Tenant
    fields = TenantFields
    section = "tenants"
    order: ClassVar[int] = 40

    def describe(self, row: rows.Tenant) -> Document:
        return {
            "name": row.name,
            "weight": row.weight,
            "blocked": row.blocked,
            **{limit: getattr(row, limit) for limit in _LIMITS},
            "models": row.models,
            "priority_classes": row.priority_classes,
            "default_priority_class": row.default_priority_class or None,
            "created_at": f.iso(row.created_at),
        }

    def assign(self, row: rows.Tenant, values: Document) -> list[Problem]:
        """What it names of models is checked where the whole configuration is; priority classes are ours."""
        default, allowed = values["default_priority_class"], values["priority_classes"]
        super().assign(row, {**values, "default_priority_class": default or ""})
        used = {pointer("/priority_classes", name): name for name in allowed or []}
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

    def wire_form(self, row: rows.Tenant) -> Document:
        described = self.describe(row)
        for name in ("name", "created_at"):
            del described[name]
        return present({**described, **{name: as_set(described[name]) for name in _NAME_LISTS}})

    def from_wire(self, content: Document) -> Document:
        return {**content, **{name: list(content[name]) for name in _NAME_LISTS if name in content}}

    def delete(self, unit: UnitOfWork, name: str) -> None:
        """Delete the tenant and its keys with it: nobody can use them afterwards."""
        keys.delete_all(unit, self.lock(name))
        super().delete(unit, name)


TENANTS = TenantNoun()
