"""Fixtures that every part's tests may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.servers import postgres_server, redis_server
from tests.services import service_binary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Tests assert behaviour, not times: a busy machine is no fault of an example's.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

_CONTROLPLANE_TESTS = Path(__file__).parent / "controlplane"
_DATABASE_FIXTURES = {"db", "transactional_db"}
# What a file of tests takes processes from; they are waited for, so such a file takes minutes.
_PROCESSES = ("tests.services", "tests.servers", "tests.programs", "tests.demo", "tests.controlplane.configs.live",
              "tests.gateway.fleet", "tests.web.site")  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Files that start processes come first: the last one must not be one that a single worker is busy with alone."""
    _mark(items)
    # Meanwhile they are chosen by their marks, and shuffled.
    yield
    items.sort(key=lambda item: not _starts_processes(item))


def _starts_processes(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    return any(getattr(value, "__module__", "") in _PROCESSES for value in vars(module).values()) if module else False


def _mark(items: list[pytest.Item]) -> None:
    """What uses Django's database, in whatever folder, belongs on both databases too."""
    for item in items:
        uses_database = item.get_closest_marker("django_db") or _DATABASE_FIXTURES & set(
            getattr(item, "fixturenames", ())
        )
        if item.get_closest_marker("own_servers"):
            continue
        if uses_database or item.path.is_relative_to(_CONTROLPLANE_TESTS):
            item.add_marker(pytest.mark.controlplane)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """SQLite's tests use a file with a write-ahead log, as the product does.

    Django would take a database in memory, whose threads share one cache and lock each other out of its tables.
    """
    from django.conf import settings

    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "only")
        database.setdefault("TEST", {})["NAME"] = str(settings.DATA_DIR / f"test-{worker}.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Between tests that commit all rows go. The audit's own guard, which refuses that, is off meanwhile."""
    from django.db import connection, transaction

    from controlplane.core.append_only import set_guard, take_guard_off

    flush = connection.ops.execute_sql_flush

    def unguarded(statements: Iterable[str]) -> None:
        with transaction.atomic():
            take_guard_off(connection)
            flush(statements)
            set_guard(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ops, "execute_sql_flush", unguarded)
        yield


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL: that of the production profile, else one started for this run."""
    if profile_url := os.environ.get("HEADWORKS_DATABASE_URL"):
        yield profile_url
    else:
        with postgres_server() as url:
            yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Redis with its database number: that of the production profile, else one started for this run."""
    if profile_url := os.environ.get("HEADWORKS_REDIS_URL"):
        yield profile_url
    else:
        with redis_server() as url:
            yield f"{url}/0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium; a test makes a context of its own in it.

    Playwright's sync API keeps an event loop running in this thread while it is open, which asyncio's tests and
    Django's ORM both refuse. So a module that has it reaches the product through its address alone.
    """
    from playwright.sync_api import sync_playwright

    chromium = service_binary("chromium")
    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses root, and needs user namespaces that containers often lack.
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
