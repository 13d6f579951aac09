"""An empty metric store a test, writers with their tokens, and readers by role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import Target
from controlplane.core.tokens import new_token, token_hash
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.telemetry.writers import METRIC_WRITERS
from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.filling import store
from tests.controlplane.telemetry.writing import Answer, write
from wire.write_body import CONTENT_TYPE, Series, encode

BASE = "/prometheus/api/v1"


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    """The store's file, which does not exist yet."""
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def now_ms() -> int:
    """A whole second, so that times in assertions read well."""
    return int(time.time()) * 1000


@pytest.fixture
def fill(own_store: Path) -> Callable[[Iterable[Series]], None]:
    """Put series into the store without HTTP; the label `node` is not asked for."""
    return lambda series: store(own_store, series, Owner("node", "n-1"))


class Sender:
    """Whoever writes with a token."""

    token: str

    def push(self, *series: Series) -> Answer:
        return self.send(encode(series))

    def send(self, body: bytes, **headers: str) -> Answer:
        return write(body, self.token, headers={"content-type": CONTENT_TYPE, **headers})


class Pusher(Sender):
    """An enrolled target that writes."""

    def __init__(self, kind: str, name: str) -> None:
        self.token = new_token("hwg")
        self.row = Target.objects.create(
            kind=kind,
            name=name,
            version="test",
            protocol=1,
            token_hash=token_hash(self.token),
            token_expires_at=timezone.now() + timedelta(days=1),
        )


class MetricWriter(Sender):
    """A Prometheus, as an admin lets it write."""

    def __init__(self, name: str, **matchers: str) -> None:
        with unit_of_work(SYSTEM, "for a test") as unit:
            self.token = METRIC_WRITERS.create(unit, name, {"matchers": matchers}).secret or ""


@pytest.fixture
def pusher(transactional_db: None) -> Callable[[str, str], Pusher]:
    """Writes are checked in threads of their own, with connections of their own."""
    return Pusher


@pytest.fixture
def metric_writer(transactional_db: None) -> Callable[..., MetricWriter]:
    return MetricWriter


@pytest.fixture
def node(pusher: Callable[[str, str], Pusher]) -> Pusher:
    return pusher("node", "n-1")


@pytest.fixture
def ask(viewer: Rest) -> Callable[..., Any]:
    """GET of the Prometheus API as a viewer; the answer."""

    def get(path: str, **parameters: Any) -> Any:
        return viewer.client.get(f"{BASE}/{path}", parameters)

    return get
