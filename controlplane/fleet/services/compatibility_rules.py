"""The only writer of compatibility rules. They are no part of the configuration: targets are told none of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun, present
from controlplane.fleet import models as rows
from controlplane.fleet.shapes import RuleForm
from wire.canonical import Document
from wire.problems import Problem


class CompatibilityRuleFields(f.Fields):
    """`reason`: why it is one, told with all that breaks it. `stops`: what breaks it may take no requests."""

    rule: RuleForm
    reason: Annotated[f.Text, Field(min_length=1, max_length=500)]
    stops: bool = f.default_of(rows.CompatibilityRule, "stops")
    enabled: bool = f.default_of(rows.CompatibilityRule, "enabled")


class CompatibilityRuleNoun(Noun[rows.CompatibilityRule]):
    noun = "compatibility rule"
    row = rows.CompatibilityRule
    fields = CompatibilityRuleFields

    def describe(self, row: rows.CompatibilityRule) -> Document:
        return {
            "name": row.name,
            "rule": RuleForm.model_validate(row.rule).model_dump(),
            "reason": row.reason,
            "stops": row.stops,
            "enabled": row.enabled,
        }

    def assign(self, row: rows.CompatibilityRule, values: Document) -> list[Problem]:
        return super().assign(row, {**values, "rule": present(values["rule"])})

    def touch(self, unit: UnitOfWork, row: rows.CompatibilityRule, name: str) -> None:
        """Nothing of it is compiled: the control plane alone judges by it."""


COMPATIBILITY_RULES = CompatibilityRuleNoun()
