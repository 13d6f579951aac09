"""What the pages of versions and of compatibility show, read at once for all their lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.fleet import compatibility
from controlplane.fleet.compatibility import Finding
from controlplane.fleet.models import CompatibilityRule, Engine, ModelVersion, Pool
from controlplane.fleet.services import versions
from controlplane.tenants.models import Tenant


@dataclass(frozen=True)
class VersionLine:
    row: ModelVersion
    newest: bool
    pools: list[str]
    pinned: list[str]
    idle_since: datetime | None


def lines(rows: Sequence[ModelVersion]) -> list[VersionLine]:
    pinned: dict[str, list[str]] = {}
    for tenant, pins in Tenant.objects.exclude(pins={}).order_by("name").values_list("name", "pins"):
        for model in set(pins.values()):
            pinned.setdefault(model, []).append(tenant)
    pools: dict[str, list[str]] = {}
    models = [row.model for row in rows]
    for pool, model in Pool.objects.filter(model__in=models).order_by("name").values_list("name", "model__name"):
        pools.setdefault(model, []).append(pool)
    newest = versions.newest_among(rows)
    return [
        VersionLine(
            row=row,
            newest=row.pk in newest,
            pools=pools.get(row.model.name, []),
            pinned=pinned.get(row.model.name, []),
            idle_since=row.idle_since,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class RuleLine:
    row: CompatibilityRule
    text: str


@dataclass(frozen=True)
class PoolFindings:
    """`works`: some engine of it takes work, so that there is something to judge."""

    pool: str
    works: bool
    findings: list[Finding]

    @property
    def stops(self) -> bool:
        return any(finding.stops for finding in self.findings)

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "broken"]

    @property
    def unknown(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "unknown"]


def rule_lines() -> list[RuleLine]:
    return [
        RuleLine(row, json.dumps(row.rule, ensure_ascii=False)) for row in CompatibilityRule.objects.order_by("name")
    ]


def findings_by_pool() -> list[PoolFindings]:
    """Of every pool, what stops first."""
    names = list(Pool.objects.order_by("name").values_list("name", flat=True))
    found = compatibility.judge(names)
    engines = Engine.objects.select_related("pool", "node")
    working = {engine.pool.name for engine in engines if not engine.takes_no_work}
    pools = [
        PoolFindings(name, name in working, [finding for finding in found if finding.pool == name]) for name in names
    ]
    return sorted(pools, key=lambda pool: (not pool.stops, not pool.broken, pool.pool))
