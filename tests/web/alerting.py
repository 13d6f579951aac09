"""What stands between alerts and people, as a site has it, for the tests of pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.alerts.services.maintenance_windows import MAINTENANCE_WINDOWS
from controlplane.alerts.services.silences import SILENCES
from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import iso
from tests.web.conftest import write

MATCHERS = ['pool="batch"']


def quiet(name: str) -> None:
    """A silence, a window, a route and an inhibition of this name; none of them is about what tests have fail."""

    def make(unit: UnitOfWork) -> None:
        silence(unit, name)
        times = {"days": ["sun"], "starts": "02:00", "ends": "04:00"}
        MAINTENANCE_WINDOWS.create(unit, name, {"matchers": MATCHERS, **times})
        ALERT_ROUTES.create(unit, name, {"matchers": MATCHERS})
        INHIBITIONS.create(unit, name, {"source_matchers": MATCHERS, "target_matchers": ['pool="none"']})

    write(make)


def silence(unit: UnitOfWork, name: str, **changes: Any) -> None:
    end = iso(timezone.now() + timedelta(hours=1))
    SILENCES.create(unit, name, {"matchers": MATCHERS, "ends_at": end, "comment": "a test", **changes})
