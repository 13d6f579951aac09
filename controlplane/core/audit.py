"""Reading the audit: who changed what, from where, when, why."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

from django.db.models import Q, QuerySet
from ninja import Field, Schema

from controlplane.core import fields as f
from controlplane.core.models import AuditEntry
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document

_WORDS_MAX_CHARACTERS = 200
_NUMBER_MAX = 2**63 - 1
# No control characters: PostgreSQL cannot compare with U+0000, and no entry is found by one.
_Words = Annotated[str, Field(max_length=_WORDS_MAX_CHARACTERS, pattern=r"^[^\x00-\x1f]*$")]


class Search(Schema):
    """Query parameters: what all entries that are found have in common. What is left out takes all."""

    noun: _Words = ""
    key: _Words = Field("", description="The name of what was changed.")
    action: Literal["create", "update", "delete"] | None = None
    actor: _Words = Field("", description="Of a token: owner/name.")
    address: _Words = Field("", description="The client's address.")
    reason: _Words = Field("", description="Part of the reason, in any case.")
    since: f.Moment | None = Field(None, description="ISO 8601 with a zone, such as 2030-01-31T12:00:00Z.")
    until: f.Moment | None = Field(None, description="Entries before this moment.")
    change_id: uuid.UUID | None = Field(None, description="Of the answer of a write.")
    revision: int | None = Field(None, ge=1, le=_NUMBER_MAX)

    def entries(self, tenants: frozenset[str] | None = None) -> QuerySet[AuditEntry]:
        """What is found, for a caller who is limited to these tenants (None: to none) theirs alone."""
        wanted = {
            "noun": self.noun,
            "key": self.key,
            "action": self.action,
            "actor": self.actor,
            "address": self.address,
            "reason__icontains": self.reason,
            "at__gte": self.since,
            "at__lt": self.until,
            "change_id": self.change_id,
            "revision": self.revision,
        }
        found = AuditEntry.objects.filter(**{column: value for column, value in wanted.items() if value})
        return found if tenants is None else found.filter(_about(sorted(tenants)))


def _about(tenants: list[str]) -> Q:
    """Entries of these tenants and of their keys, whose form names the tenant."""
    forms = Q(before__tenant__in=tenants) | Q(after__tenant__in=tenants)
    return Q(noun="tenant", key__in=tenants) | (Q(noun="key") & forms)


def describe(row: AuditEntry) -> Document:
    return {
        "id": row.pk,
        "change_id": str(row.change_id),
        "at": f.iso(row.at),
        "actor_kind": row.actor_kind,
        "actor": row.actor,
        "address": row.address or None,
        "noun": row.noun,
        "key": row.key,
        "action": row.action,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "revision": row.revision,
    }


def page(entries: QuerySet[AuditEntry], limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[AuditEntry], int | None]:
    """Entries, newest first; `after` is the last entry of the page before."""
    if after:
        entries = entries.filter(pk__lt=after)
    return page_of(entries.order_by("-pk"), limit, lambda entry: entry.pk)
