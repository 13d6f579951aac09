"""A route, an override and a stage, as people would have left them."""

from __future__ import annotations

from controlplane.breakers import services as breakers
from controlplane.breakers.models import Override
from controlplane.configs import stage_asked
from controlplane.configs.models import Stage
from controlplane.core.changes import UnitOfWork
from controlplane.routing.services import ROUTES
from tests.web.conftest import write


def forced(kind: str, name: str, state: str = "open", seconds: int = 3600) -> Override:
    asked = {"subject_kind": kind, "subject": name, "state": state, "expires_in_seconds": seconds}
    row: Override = write(lambda unit: breakers.force(unit, asked))
    return row


def begun(*targets: str, patch: dict[str, object] | None = None) -> Stage:
    """A stage of a new priority class, or of a given change, for these targets."""
    asked = {"patch": patch or {"priority_classes": {"tried": {"rank": 5}}}, "targets": list(targets)}
    row: Stage = write(lambda unit: stage_asked.begin(unit, asked, allow_removals=False))
    return row


def routing_nouns(pool: str, target: str) -> dict[str, object]:
    """What stands in the braces of the pages of routes, breakers and stages."""

    def create(unit: UnitOfWork) -> None:
        ROUTES.create(unit, "first", {"order": 10, "pools": {pool: 1000}})
        ROUTES.create(unit, "last", {"order": 20, "reject": "nothing else is served"})

    write(create)
    return {"override": forced("pool", pool).name, "stage": begun(target).pk}
