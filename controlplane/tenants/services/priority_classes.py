"""Priority classes: who is served first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar

import msgspec
from django.db.models import Q
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.tenants import models as rows
from policy.ageing import waits_at_most_ms
from wire import snapshot
from wire.canonical import Document


class PriorityClassFields(f.Fields):
    """`rank`: lower is served first. One rank is gained per `ageing_ms` waited (0: never).

    When a pool's queue is full a request of a higher `shed_order` gives way to one of a lower. Requests of the class
    may make an engine's admissible KV cache `kv_ceiling_permille` full: the rest is kept for classes with a higher
    ceiling, and stays what it was in tokens when engines of the pool are cordoned. What is set of the SLO goes before
    what the pool sets.
    """

    rank: f.Count
    ageing_ms: f.Millis = f.default_of(rows.PriorityClass, "ageing_ms")
    queue_ttl_ms: f.Millis | None = None
    shed_order: f.Count = f.default_of(rows.PriorityClass, "shed_order")
    kv_ceiling_permille: Annotated[int, Field(ge=1, le=1000)] = f.default_of(rows.PriorityClass, "kv_ceiling_permille")
    ttft_slo_ms: f.Millis | None = None
    tpot_slo_ms: f.Millis | None = None
    e2e_slo_ms: f.Millis | None = None
    objective_permille: f.PerMille | None = None


class PriorityClassNoun(Noun[rows.PriorityClass]):
    noun = "priority class"
    row = rows.PriorityClass
    fields = PriorityClassFields
    section = "priority_classes"
    order: ClassVar[int] = 30

    def describe(self, row: rows.PriorityClass) -> Document:
        return {"name": row.name, **{field: getattr(row, field) for field in PriorityClassFields.model_fields}}

    def wire_form(self, row: rows.PriorityClass) -> Document:
        described = self.describe(row)
        del described["name"]
        # What the configuration need not say.
        for field in ("shed_order", "kv_ceiling_permille"):
            if described[field] == f.default_of(rows.PriorityClass, field):
                del described[field]
        return present(described)

    def show(self, classes: Sequence[rows.PriorityClass]) -> list[Document]:
        """The public forms, and after how long a wait a request goes before all that arrive later (null: never)."""
        everyone = [self._typed(row) for row in self.queryset()]
        return [
            {**self.describe(row), "waits_at_most_ms": waits_at_most_ms(self._typed(row), everyone)} for row in classes
        ]

    def _typed(self, row: rows.PriorityClass) -> snapshot.PriorityClass:
        return msgspec.convert(self.wire_form(row), snapshot.PriorityClass)

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
