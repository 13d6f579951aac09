"""Publishing a new version: its model as the newest of its family, and a route that leads there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import versions
from controlplane.rollouts.facts import routes_naming
from controlplane.routing.services import ROUTES


def publish(unit: UnitOfWork, pool: str, spec: Mapping[str, Any]) -> None:
    """In one unit: no gateway knows of the version before it has a route. `spec`: of the rollout. Raises Refused."""
    if not any(spec["model"] in (route["match"]["models"] or ()) for route in routes_naming(pool).values()):
        route = {"order": spec["route_order"], "match": {"models": [spec["model"]]}, "pools": {pool: 1000}}
        ROUTES.create(unit, pool, route)
    versions.publish(unit, spec["family"], spec["version"], spec["model"])
