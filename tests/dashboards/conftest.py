"""People of each role in front of the dashboards, and a metric store of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from controlplane.core.models import Role, User
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from dashboards import readings, stream
from dashboards.shared import Shared
from tests.controlplane.telemetry.filling import store

# Pages here are opened as the others are.
from tests.web.conftest import _plain_static_files, log_ins, open_page  # noqa: F401
from wire.write_body import Series


@pytest.fixture(autouse=True)
def _nothing_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test read is not kept for the next."""
    monkeypatch.setattr(readings, "_readings", Shared(8))
    monkeypatch.setattr(stream, "_events", Shared(8))


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def fill(own_store: Path) -> Callable[[Iterable[Series]], None]:
    """Put series into the store without HTTP."""
    return lambda series: store(own_store, series, Owner("gateway", "edge-1"))


@pytest.fixture
def viewer(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="vera", role=Role.VIEWER))
    return client
