from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from controlplane.api import health
from controlplane.api.database_check import DatabaseCheck
from controlplane.configs.heads import Heads
from controlplane.configs.history import Damaged
from controlplane.configs.hub import Hub, heads
from controlplane.configs.models import Fragment, Revision
from controlplane.configs.publisher import publish
from tests.controlplane.conftest import Rest


@pytest.fixture
def newest(db: None) -> Heads:
    publish()
    heads.refresh()
    return heads


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a web process; the hub's own thread is not wanted beside a test's transaction."""
    monkeypatch.setattr(Hub, "running", True)


@contextmanager
def database_away() -> Iterator[None]:
    def away(*_: Any, **__: Any) -> None:
        raise DatabaseError("away")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connection, "cursor", away)
        yield


@pytest.fixture(autouse=True)
def _plain_static_files(settings: Any) -> None:
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}


def figures(client: Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = client.get("/metrics").content.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_process_lives_without_its_database() -> None:
    with database_away():
        answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.usefixtures("running")
def test_it_is_ready_once_a_revision_is_loaded(newest: Heads) -> None:
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (200, [])


def test_it_is_not_ready_before_it_distributes(newest: Heads) -> None:
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["missing"] == ["the configuration is not distributed by this process"]


@pytest.mark.usefixtures("running")
def test_it_is_not_ready_without_its_database(newest: Heads) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(health, "database_check", DatabaseCheck(lambda: "the database does not answer", 10, 0))
        answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (503, ["the database does not answer"])


@pytest.mark.usefixtures("running")
def test_it_is_not_ready_with_a_damaged_revision_and_names_it(newest: Heads) -> None:
    Fragment.objects.create(section="tenants", key="a", content={"weight": 1})
    publish()
    Revision.objects.filter(number=2).update(patch={"tenants": {"a": {"weight": 2}}})
    with pytest.raises(Damaged):
        newest.refresh()
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    (lacks,) = answer.json()["missing"]
    assert "revision 2" in lacks


def test_metrics_count_targets_by_state_and_requests_by_route(
    newest: Heads, admin: Rest, rest_of: Callable[..., Rest]
) -> None:
    client = Client()
    before = figures(client)
    join = admin.post("/targets/join-tokens", {"kind": "gateway"}).json()["secret"]
    body = {"join_token": join, "kind": "gateway", "name": "gw", "version": "1", "protocol": 1}
    assert rest_of(None).post("/targets/enrol", body).status_code == 201
    admin.get("/tenants/no-such-secret-name")
    client.get("/nowhere/at/all")
    now = figures(client)
    assert now["headworks_config_revision", ()] == 1
    assert now["headworks_targets", (("kind", "gateway"), ("state", "never"))] == 1
    assert now["headworks_targets", (("kind", "node"), ("state", "never"))] == 0
    route = (("method", "GET"), ("route", "api/v1/tenants/<name>"), ("status", "404"))
    assert now["headworks_requests_total", route] == before.get(("headworks_requests_total", route), 0) + 1
    unknown = (("method", "GET"), ("route", "unknown"), ("status", "404"))
    assert now["headworks_requests_total", unknown] == before.get(("headworks_requests_total", unknown), 0) + 1
    assert not any("no-such-secret-name" in str(key) for key in now)
    assert ("headworks_publish_seconds_count", ()) in now
    assert ("headworks_ack_batch_size_count", ()) in now


def test_metrics_go_on_without_the_database(newest: Heads) -> None:
    with database_away():
        now = figures(Client())
    assert ("headworks_config_streams", ()) in now
    assert ("headworks_config_revision", ()) not in now


def test_metrics_go_on_with_a_damaged_revision(newest: Heads) -> None:
    Fragment.objects.create(section="tenants", key="a", content={"weight": 1})
    publish()
    Revision.objects.filter(number=2).update(patch={"tenants": {"a": {"weight": 2}}})
    now = figures(Client())
    assert ("headworks_config_streams", ()) in now
    assert ("headworks_config_revision", ()) not in now
