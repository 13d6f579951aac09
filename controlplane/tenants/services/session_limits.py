"""Session limits: what one session of a tenant may take, so that an agent that runs away ends."""

from __future__ import annotations

from typing import ClassVar

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.tenants import models as rows
from wire.canonical import Document


class SessionLimitsFields(f.Fields):
    """A null limit is no limit. A session that nobody used for `idle_ms` is forgotten."""

    max_iterations: f.Positive | None = None
    max_tokens: f.Positive | None = None
    max_depth: f.Count | None = None
    max_repeated_calls: f.Positive | None = None
    max_cost_micros: f.Count | None = None
    idle_ms: f.Millis = f.default_of(rows.SessionLimits, "idle_ms")


class SessionLimitsNoun(Noun[rows.SessionLimits]):
    noun = "session limits"
    row = rows.SessionLimits
    fields = SessionLimitsFields
    section = "session_limits"
    order: ClassVar[int] = 25

    def describe(self, row: rows.SessionLimits) -> Document:
        return {"name": row.name, **{field: getattr(row, field) for field in SessionLimitsFields.model_fields}}

    def wire_form(self, row: rows.SessionLimits) -> Document:
        described = self.describe(row)
        del described["name"]
        return present(described)

    def users(self, row: rows.SessionLimits) -> list[str]:
        return [f"tenant {name!r}" for name in row.tenants.order_by("name").values_list("name", flat=True)]


SESSION_LIMITS = SessionLimitsNoun()
