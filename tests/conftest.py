"""Fixtures that every part's tests may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.connections import close_those_left, noted
from tests.servers import postgres_server, redis_server
from tests.services import service_binary

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Tests assert behaviour, not times: a busy machine is no fault of an example's.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

# Fixtures and marks of tests that use Django's database, and what starts processes on the one that a run tests.
_DATABASE = {"django_db", "db", "transactional_db", "live_server", "live"}
_SITES = ("tests.controlplane.configs.live", "tests.controlplane.configs.disturbed")
# The control plane's own tests. Pages and other parts only need a database behind what they test.
_TESTS = Path(__file__).parent
_OWN = _TESTS / "controlplane"
# What a file of tests takes processes from; they are waited for, so such a file takes minutes.
_PROCESSES = ("tests.services", "tests.servers", "tests.programs", "tests.demo", "tests.controlplane.configs.live",
              "tests.gateway.fleet", "tests.web.site")  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Files that take long come first: the last one must not be one that a single worker is busy with alone."""
    _mark(items)
    # Meanwhile they are chosen by their marks, and shuffled.
    yield
    items.sort(key=lambda item: not _takes_long(item))


def _takes_long(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("long")) or _takes_from(getattr(item, "module", None), _PROCESSES)


@cache
def _takes_from(module: object, helpers: tuple[str, ...]) -> bool:
    """Whether a file of tests holds anything that these modules define."""
    return module is not None and any(getattr(value, "__module__", "") in helpers for value in vars(module).values())


def _mark(items: list[pytest.Item]) -> None:
    """What uses Django's database, or a site of processes on one, belongs on both databases; all else runs once.

    So do pages and other parts, on PostgreSQL, the stricter; but not what commits, or whose file says otherwise.
    """
    for item in items:
        if item.get_closest_marker("own_servers"):
            continue
        asked = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
        if asked & _DATABASE or _takes_from(getattr(item, "module", None), _SITES):
            item.add_marker(pytest.mark.controlplane)
            if _is_behind(item) and not asked & {"both_databases", "transactional_db", "live_server"}:
                item.add_marker(pytest.mark.once)


def _is_behind(item: pytest.Item) -> bool:
    """Whether the database stands behind what is tested."""
    mark = item.get_closest_marker("django_db")
    commits = mark is not None and mark.kwargs.get("transaction")
    return not commits and item.path.parent != _TESTS and not item.path.is_relative_to(_OWN)


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
        # As PostgreSQL's here: a commit outlives a killed process, not a power cut.
        database["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Between tests that commit all rows go. The audit's own guard, which refuses that, is off meanwhile."""
    from django.core.management.commands import flush
    from django.db import connection, transaction

    from controlplane.core.append_only import set_guard, take_guard_off
    from controlplane.core.models import AuditEntry

    def empty_what_is_filled(_style: object, tables: Iterable[str], **_options: object) -> list[str]:
        """Instead of all hundred tables, which takes PostgreSQL longer than most tests."""
        quoted = {table: connection.ops.quote_name(table) for table in tables}
        asked = (f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {name})" for table, name in quoted.items())
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(asked))
            return [f"DELETE FROM {quoted[table]}" for (table,) in cursor.fetchall()]

    run = connection.ops.execute_sql_flush

    def unguarded(statements: list[str]) -> None:
        with transaction.atomic():
            if AuditEntry.objects.exists():
                take_guard_off(connection)
                run(statements)
                set_guard(connection)
            else:
                run(statements)

    with noted(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ops, "sql_flush", empty_what_is_filled)
        patch.setattr(connection.ops, "execute_sql_flush", unguarded)
        # It would write Django's permissions anew, which nothing here asks for.
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_: None)
        yield
        # PostgreSQL removes no database that somebody is connected to.
        close_those_left()


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
