"""Models and aliases as their pages show them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from controlplane import settings_rows
from controlplane.breakers.standing import Forced
from controlplane.fleet.models import Alias, Engine, Model, ModelVersion, Pool
from controlplane.fleet.services import MODELS
from controlplane.web.listed import Listed, Wanted, listed, named_by
from controlplane.web.shown import pool_readings
from controlplane.web.shown.overview import stands
from controlplane.web.shown.pool_words import Engines


@dataclass(frozen=True)
class ServedPool:
    name: str
    engines: Engines


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
    """A page of them, `listed`. `missing`: why nothing measured is shown."""

    lines: list[ModelLine]
    listed: Listed[Model]
    missing: str


def models(wanted: Wanted) -> Models:
    """A page of them by name or alias, in a number of queries that does not grow with them."""
    numbers = pool_readings.board.get()
    named = Q(name__icontains=wanted.text)
    if wanted.text:
        named |= Q(pk__in=Alias.objects.filter(name__icontains=wanted.text).values("model"))
    page = listed(MODELS.queryset().filter(named).order_by("name"), wanted)
    versions = {row.model_id: row for row in ModelVersion.objects.filter(model__in=page.rows)}
    aliases, pools = _aliases(page.rows), _pools(page.rows)
    lines = []
    for row in page.rows:
        own = pools.get(row.pk, [])
        rates = [rate for pool in own if (rate := numbers.of("requests", pool.name)) is not None]
        lines.append(ModelLine(row, aliases.get(row.pk, []), own, versions.get(row.pk), sum(rates) if rates else None))
    return Models(lines, page, numbers.missing)


def _aliases(models: Sequence[Model]) -> Mapping[int, list[str]]:
    return named_by(Alias.objects.filter(model__in=models).values_list("model_id", "name"))


def _pools(models: Sequence[Model]) -> Mapping[int, list[ServedPool]]:
    """Engines are counted as the list of pools counts them."""
    now, silent = timezone.now(), timedelta(seconds=settings_rows.TARGET_SILENT_SECONDS.read())
    forced, counts = Forced(now), defaultdict[int, Counter[str]](Counter)
    for engine in Engine.objects.filter(pool__model__in=models).select_related("node", "pool"):
        counts[engine.pool_id][stands(engine, now, silent, forced)] += 1
    found: dict[int, list[ServedPool]] = {}
    for row in Pool.objects.filter(model__in=models).order_by("name"):
        found.setdefault(row.model_id, []).append(ServedPool(row.name, Engines(**counts[row.pk])))
    return found
