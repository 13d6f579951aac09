"""Which nodes hold the engines of a pool: a GPU's series know its node, and no pool."""

from __future__ import annotations

from controlplane.fleet.models import Engine
from dashboards.charts.rows import Hosts, Only


def hosts_of(only: Only) -> Hosts:
    """Of the chosen pool, by name; none where no pool is chosen."""
    pool = dict(only).get("pool")
    if pool is None:
        return ()
    placed = Engine.objects.filter(pool__name=pool, node__isnull=False)
    return tuple(placed.order_by("node__name").values_list("node__name", flat=True).distinct())
