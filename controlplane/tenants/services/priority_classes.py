"""Priority classes: who is served first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.db.models import Q

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.tenants import models as rows
from wire.canonical import Document


class PriorityClassFields(f.Fields):
    """`rank`: lower is served first. One rank is gained per `ageing_ms` waited (0: never)."""

    rank: f.Count
    ageing_ms: f.Millis = f.default_of(rows.PriorityClass, "ageing_ms")
    queue_ttl_ms: f.Millis | None = None


class PriorityClassNoun(Noun[rows.PriorityClass]):
    noun = "priority class"
    row = rows.PriorityClass
    fields = PriorityClassFields
    section = "priority_classes"
    order: ClassVar[int] = 30

    def describe(self, row: rows.PriorityClass) -> Document:
        return {"name": row.name, "rank": row.rank, "ageing_ms": row.ageing_ms, "queue_ttl_ms": row.queue_ttl_ms}

    def wire_form(self, row: rows.PriorityClass) -> Document:
        described = self.describe(row)
        del described["name"]
        return present(described)

    def users(self, row: rows.PriorityClass) -> list[str]:
        # Neither database finds a member of a JSON list in a way that both understand.
        naming = rows.Tenant.objects.filter(Q(priority_classes__isnull=False) | Q(default_priority_class=row.name))
        found = naming.order_by("name").values_list("name", "priority_classes", "default_priority_class")
        return [f"tenant {name!r}" for name, allowed, default in found if row.name in (default, *(allowed or ()))]

    def existing(self, names: Iterable[str]) -> set[str]:
        """Those of `names` that exist, locked until the transaction ends."""
        wanted = set(names)
        if not wanted:
            return set()
        locked = rows.PriorityClass.objects.select_for_update().filter(name__in=wanted).order_by("pk")
        return set(locked.values_list("name", flat=True))


PRIORITY_CLASSES = PriorityClassNoun()
