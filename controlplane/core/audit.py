"""Reading the audit: who changed what, when, why."""

from __future__ import annotations

from controlplane.core import fields as f
from controlplane.core.models import AuditEntry
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document


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


def page(
    *, noun: str = "", key: str = "", actor: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[AuditEntry], int | None]:
    """Entries, newest first; `after` is the last entry of the page before. Empty filters take all."""
    wanted = {name: value for name, value in (("noun", noun), ("key", key), ("actor", actor)) if value}
    entries = AuditEntry.objects.filter(**wanted)
    if after:
        entries = entries.filter(pk__lt=after)
    return page_of(entries.order_by("-pk"), limit, lambda entry: entry.pk)
