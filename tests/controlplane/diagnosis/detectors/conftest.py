from __future__ import annotations

import pytest

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.fleet.services import ENGINES, POOLS
from controlplane.routing.services import ROUTES
from controlplane.tenants.services import PRIORITY_CLASSES, TENANTS


@pytest.fixture
def stored(fleet: None) -> None:
    """The rows that findings of these tests name: pools chat and long, a rule to chat, tenants, classes."""
    with unit_of_work(SYSTEM, "for a test") as unit:
        POOLS.create(unit, "long", {"model": "llama", "work": "long"})
        ENGINES.create(unit, "e2", {"url": "http://10.0.0.2:8000", "pool": "long", "served_model": "m", "node": "n1"})
        ROUTES.create(unit, "all", {"order": 10, "pools": {"chat": 1000}})
        PRIORITY_CLASSES.create(unit, "interactive", {"rank": 10})
        PRIORITY_CLASSES.create(unit, "batch", {"rank": 90})
        TENANTS.create(unit, "globex", {"default_priority_class": "interactive"})
