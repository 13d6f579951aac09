"""Models and aliases as their pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, Q

from controlplane.fleet.models import Alias, Model, ModelVersion, Pool
from controlplane.fleet.services import MODELS
from controlplane.web.shown import pool_readings


@dataclass(frozen=True)
class ServedPool:
    """A pool of a model: its engines, and those of them that are up."""

    name: str
    engines: int
    up: int


@dataclass(frozen=True)
class ModelLine:
    """One model. `version` is the one of a family that it is, if it is one. `requests_per_second`: of its pools."""

    row: Model
    aliases: list[str]
    pools: list[ServedPool]
    version: ModelVersion | None
    requests_per_second: float | None


@dataclass(frozen=True)
class Models:
    """`missing`: why nothing measured is shown."""

    lines: list[ModelLine]
    missing: str


def models() -> Models:
    """All of them by name, in a number of queries that does not grow with them."""
    numbers = pool_readings.board.get()
    aliases, pools, versions = _aliases(), _pools(), {row.model_id: row for row in ModelVersion.objects.all()}
    lines = []
    for row in MODELS.queryset().order_by("name"):
        own = pools.get(row.pk, [])
        rates = [rate for pool in own if (rate := numbers.of("requests", pool.name)) is not None]
        lines.append(ModelLine(row, aliases.get(row.pk, []), own, versions.get(row.pk), sum(rates) if rates else None))
    return Models(lines, numbers.missing)


def _aliases() -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for model, name in Alias.objects.order_by("name").values_list("model_id", "name"):
        found.setdefault(model, []).append(name)
    return found


def _pools() -> Mapping[int, list[ServedPool]]:
    found: dict[int, list[ServedPool]] = {}
    up = Count("engines", filter=Q(engines__state="up"))
    for row in Pool.objects.annotate(engines_count=Count("engines"), up=up).order_by("name"):
        found.setdefault(row.model_id, []).append(ServedPool(row.name, row.engines_count, row.up))
    return found
