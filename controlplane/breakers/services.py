"""The only writer of breaker overrides."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.utils import timezone
from pydantic import Field

from controlplane.breakers import models as rows
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.expiry import end_all
from controlplane.core.nouns import Noun
from wire.canonical import Document
from wire.problems import Problem

# What shall hold for longer than a day is no stopgap: thresholds and cordons are for that, and do not end unnoticed.
EXPIRES_MAX_SECONDS = 86_400


class NewOverrideFields(f.Fields):
    """Which breaker is forced, to what, for how long. The reason is that of the write, the owner its actor."""

    subject_kind: Literal["pool", "engine"]
    subject: f.Name
    state: Literal["open", "closed"]
    expires_in_seconds: Annotated[int, Field(ge=1, le=EXPIRES_MAX_SECONDS)]


class OverrideFields(f.Fields):
    """The whole of an override, as it is kept."""

    subject_kind: Literal["pool", "engine"]
    subject: f.Name
    state: Literal["open", "closed"]
    owner: Annotated[f.Text, Field(max_length=150)]
    reason: Annotated[f.Text, Field(max_length=500)]
    expires_at_ms: f.EpochMillis


class OverrideNoun(Noun[rows.Override]):
    noun = "override"
    row = rows.Override
    fields = OverrideFields
    section = "overrides"

    def describe(self, row: rows.Override) -> Document:
        return {
            "name": row.name,
            "subject_kind": row.subject_kind,
            "subject": row.subject,
            "state": row.state,
            "owner": row.owner,
            "reason": row.reason,
            "created_at": f.iso(row.created_at),
            "expires_at": f.iso(row.expires_at),
        }

    def assign(self, row: rows.Override, values: Document) -> list[Problem]:
        expires_at = f.from_epoch_ms(values["expires_at_ms"])
        rest = {name: value for name, value in values.items() if name != "expires_at_ms"}
        return super().assign(row, {**rest, "expires_at": expires_at})

    def wire_form(self, row: rows.Override) -> Document:
        kept = {name: getattr(row, name) for name in ("subject_kind", "subject", "state", "owner", "reason")}
        return {**kept, "expires_at_ms": f.epoch_ms(row.expires_at)}


OVERRIDES = OverrideNoun()


def force(unit: UnitOfWork, fields: Mapping[str, Any]) -> rows.Override:
    """Force a breaker until it expires. The actor owns the override, and the reason of the unit of work is its reason.

    Raises Refused with every problem; there is none without an end.
    """
    asked = f.read(NewOverrideFields, fields)
    whole = {
        **asked.model_dump(exclude={"expires_in_seconds"}),
        "owner": unit.actor.name,
        "reason": unit.reason,
        "expires_at_ms": f.epoch_ms(timezone.now() + timedelta(seconds=asked.expires_in_seconds)),
    }
    return OVERRIDES.create(unit, f"{asked.subject_kind}-{asked.state}-{secrets.token_hex(4)}", whole)


def forget_expired(now: datetime) -> int:
    """Lift what has expired, of which gateways take no more notice; answers how many. The audit keeps them."""
    expired = rows.Override.objects.filter(expires_at__lte=now)
    return end_all(expired, "the override expired", lambda unit, row: OVERRIDES.delete(unit, row.name))


get, page, describe, lift = OVERRIDES.get, OVERRIDES.page, OVERRIDES.describe, OVERRIDES.delete
