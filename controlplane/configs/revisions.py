"""Revisions as people read them: lists, one with its audit entries, differences. Never an engine's key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from controlplane.configs import history
from controlplane.configs.models import Revision
from controlplane.configs.public import public_form
from controlplane.core.fields import iso
from controlplane.core.models import AuditEntry
from controlplane.core.nouns import page_of
from wire.canonical import Document


def page(limit: int, after: int | None) -> tuple[list[Document], int | None]:
    """Newest first, those below `after`; and where the next page starts."""
    rows = Revision.objects.order_by("-number").defer("whole", "inverse")
    if after is not None:
        rows = rows.filter(number__lt=after)
    found, following = page_of(rows, limit, lambda revision: revision.number)
    entries = _entries([revision.number for revision in found])
    return [_summary(revision, entries[revision.number]) for revision in found], following


def describe(number: int) -> Document:
    """One revision: its patch and who changed what, why. Raises NotFound."""
    revision = history.get(number)
    entries = _entries([number])[number]
    return {**_summary(revision, entries), "patch": public_form(revision.patch), "audit": entries}


def difference(before: int, after: int) -> Document:
    """Raises NotFound."""
    return {"from": before, "to": after, "patch": public_form(history.difference(before, after))}


def _summary(revision: Revision, entries: list[dict[str, Any]]) -> Document:
    return {
        "number": revision.number,
        "published_at": iso(revision.published_at),
        "hash": revision.hash,
        "rollback_to": revision.rollback_to,
        "stage": revision.stage and revision.stage["id"],
        "actors": sorted({entry["actor"] for entry in entries}),
        "reasons": list(dict.fromkeys(entry["reason"] for entry in entries)),
        "changed": [
            {"section": section, "key": key, "removed": entry is None}
            for section, keys in revision.patch.items()
            for key, entry in (keys or {}).items()
        ],
    }


def _entries(numbers: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in AuditEntry.objects.filter(revision__in=numbers).order_by("id"):
        if entry.revision is not None:
            found[entry.revision].append(
                {
                    "id": entry.pk,
                    "change_id": str(entry.change_id),
                    "at": iso(entry.at),
                    "actor_kind": entry.actor_kind,
                    "actor": entry.actor,
                    "noun": entry.noun,
                    "key": entry.key,
                    "action": entry.action,
                    "before": entry.before,
                    "after": entry.after,
                    "reason": entry.reason,
                }
            )
    return found
