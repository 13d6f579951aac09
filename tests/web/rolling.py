"""Rollouts for the tests of their pages."""

from __future__ import annotations

from typing import Any

from controlplane.fleet.models import Engine, Node
from controlplane.rollouts import services
from controlplane.rollouts.models import Rollout
from tests.web.conftest import write


def restart_of(engine: str, **fields: Any) -> Rollout:
    """A rolling restart of the engine's pool, to which no route leads."""
    row = Engine.objects.get(name=engine)
    for node in Node.objects.all():
        node.allowed_acts = {**node.allowed_acts, engine: ["drain", "restart"]}
        node.save()
    body = {"kind": "rolling_restart", "pool": row.pool.name, **fields}
    begun: Rollout = write(lambda unit: services.begin(unit, body))
    return begun
