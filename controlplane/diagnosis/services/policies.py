"""The only writer of lever policies: which levers may be applied by themselves, and within which limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import LeverPolicy
from controlplane.fleet.services import POOLS
from wire.canonical import Document
from wire.problems import Problem, pointer

LeverKey = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class LeverPolicyFields(f.Fields):
    """Apply lever `lever` of detector `detector` without asking anybody, while `enabled`.

    At most `max_an_hour` times, where the finding's confidence is `min_confidence_permille` or more, and where all its
    pools are among `pools` (null: any). `revert_if_not_held`: take it back where the finding did not clear. A field
    that a person changed within `stand_back_seconds` is left to them.
    """

    detector: Annotated[str, Field(min_length=1, max_length=63)]
    lever: LeverKey
    enabled: bool = f.default_of(LeverPolicy, "enabled")
    max_an_hour: Annotated[int, Field(ge=1, le=60)] = f.default_of(LeverPolicy, "max_an_hour")
    min_confidence_permille: f.PerMille = f.default_of(LeverPolicy, "min_confidence_permille")
    pools: f.Names | None = None
    revert_if_not_held: bool = f.default_of(LeverPolicy, "revert_if_not_held")
    stand_back_seconds: Annotated[int, Field(ge=0, le=30 * 86_400)] = f.default_of(LeverPolicy, "stand_back_seconds")


class LeverPolicyNoun(Noun[LeverPolicy]):
    noun = "lever policy"
    row = LeverPolicy
    fields = LeverPolicyFields

    def describe(self, row: LeverPolicy) -> Document:
        return {"name": row.name, **{name: getattr(row, name) for name in LeverPolicyFields.model_fields}}

    def assign(self, row: LeverPolicy, values: Document) -> list[Problem]:
        names = [detector.name for detector in DETECTORS]
        problems = []
        if values["detector"] not in names:
            message = f"there is no detector {values['detector']!r}; there are {', '.join(names)}"
            problems.append(Problem("/detector", "unknown", message))
        for name in values["pools"] or ():
            if POOLS.find(name) is None:
                problems.append(Problem(pointer("/pools", name), "reference", f"pool {name!r} does not exist"))
        super().assign(row, values)
        return problems

    def touch(self, unit: UnitOfWork, row: LeverPolicy, name: str) -> None:
        """Nothing of it is compiled: the worker acts by it."""


LEVER_POLICIES = LeverPolicyNoun()
