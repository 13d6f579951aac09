"""Publishing a new version: its model as the newest of its family, and a route that leads there."""

from __future__ import annotations

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import versions
from controlplane.rollouts.facts import routes_naming
from controlplane.rollouts.models import Rollout
from controlplane.routing.services import ROUTES


def publish(unit: UnitOfWork, row: Rollout) -> None:
    """In one unit: no gateway knows of the version before it has a route. Raises Refused."""
    spec = row.spec
    if not any(spec["model"] in (route["match"]["models"] or ()) for route in routes_naming(row.pool).values()):
        route = {"order": spec["route_order"], "match": {"models": [spec["model"]]}, "pools": {row.pool: 1000}}
        ROUTES.create(unit, row.pool, route)
    versions.publish(unit, spec["family"], spec["version"], spec["model"])
