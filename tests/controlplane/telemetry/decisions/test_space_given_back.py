"""A database of before decisions, brought up to date: its file is laid out anew, and keeps what it holds."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db.backends.sqlite3.base import DatabaseWrapper

# The connections here are the tests' own; the mark lets them be opened.
pytestmark = pytest.mark.django_db
migration = import_module("controlplane.telemetry.migrations.0003_space_given_back")


def old_database(file: Path) -> DatabaseWrapper:
    """One that was made without incremental vacuum."""
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO kept VALUES (7)")
    connection.close()
    settings: dict[str, Any] = {"NAME": str(file), "OPTIONS": {}, "TIME_ZONE": None, "AUTOCOMMIT": True}
    return DatabaseWrapper(
        {**settings, "CONN_MAX_AGE": 0, "ATOMIC_REQUESTS": False, "CONN_HEALTH_CHECKS": False}, "old"
    )


def layout(file: Path) -> tuple[int, int]:
    with sqlite3.connect(file) as connection:
        (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
        (number,) = connection.execute("SELECT number FROM kept").fetchone()
    connection.close()
    return mode, number


def test_an_older_database_is_laid_out_anew(tmp_path: Path) -> None:
    database = old_database(tmp_path / "old.sqlite3")
    assert layout(tmp_path / "old.sqlite3") == (0, 7)
    migration.lay_out(None, SimpleNamespace(connection=database))
    database.close()
    assert layout(tmp_path / "old.sqlite3") == (2, 7)


def test_one_that_is_in_use_stays_as_it_is_and_the_upgrade_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "old.sqlite3"
    database = old_database(file)
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        database.settings_dict["OPTIONS"] = {"timeout": 0}
        migration.lay_out(None, SimpleNamespace(connection=database))
        other.execute("ROLLBACK")
    other.close()
    database.close()
    assert "used again there" in caplog.text
    assert layout(file) == (0, 7)
