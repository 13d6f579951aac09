"""The only writer of inhibitions: which alerts are mute because of what caused them."""

from __future__ import annotations

from typing import Annotated

from django.utils import timezone
from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.services import notifying
from controlplane.alerts.services.matching import ChoosingMatchers
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun
from controlplane.telemetry.expressions import LABELS_MAX, LabelName
from wire.canonical import Document


class InhibitionFields(f.Fields):
    """While an alert that `source_matchers` match fires, nobody is told of those that `target_matchers` match and that
    have the same values of the labels `equal`."""

    source_matchers: ChoosingMatchers
    target_matchers: ChoosingMatchers
    equal: Annotated[list[LabelName], Field(max_length=LABELS_MAX)] = Field(default_factory=list)
    enabled: bool = f.default_of(rows.Inhibition, "enabled")


class InhibitionNoun(Noun[rows.Inhibition]):
    noun = "inhibition"
    row = rows.Inhibition
    fields = InhibitionFields

    def describe(self, row: rows.Inhibition) -> Document:
        return {"name": row.name, **{name: getattr(row, name) for name in InhibitionFields.model_fields}}

    def touch(self, unit: UnitOfWork, row: rows.Inhibition, name: str) -> None:
        """Nothing of it is compiled: what fires is looked at anew."""
        notifying.wake(timezone.now())


INHIBITIONS = InhibitionNoun()
