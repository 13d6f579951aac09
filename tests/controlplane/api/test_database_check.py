"""Whether the database can be written is told in bounded time, whatever the database does."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, transaction

from controlplane.api import database_check
from controlplane.api.database_check import DatabaseCheck
from tests.controlplane.core.racing import at_once
from tests.services import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def _read_only() -> Iterator[None]:
    sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON" if sqlite else "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    yield
    if sqlite:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = OFF")
    else:
        # Else the session would go on as it is for another test.
        connection.close_pool()  # type: ignore[attr-defined]


def test_nothing_lacks_where_it_can_be_written() -> None:
    assert database_check.write() is None


@pytest.mark.usefixtures("_read_only")
def test_a_database_that_can_only_be_read_is_told() -> None:
    assert database_check.write() == "the database cannot be written"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="another machine's disk")
def test_a_disk_that_has_no_room_for_more_is_told_where_a_small_write_still_succeeds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "headworks.sqlite3"
    file.touch()
    monkeypatch.setitem(connection.settings_dict, "NAME", str(file))
    used = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: used._replace(free=200_000))
    assert database_check._full_disk() == "the database cannot be written: its disk is full"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: used._replace(free=2_000_000))
    assert database_check._full_disk() is None


def test_a_database_that_another_writes_just_now_lacks_nothing() -> None:
    found: list[str | None] = []
    with transaction.atomic():
        ends = at_once(lambda: found.append(database_check.write()))
    assert (ends, found) == ([None], [None])


def test_one_that_hangs_is_told_in_time_and_asked_once_until_it_answers() -> None:
    asked: list[int] = []
    released = threading.Event()

    def hanging() -> None:
        asked.append(1)
        released.wait(30)

    check = DatabaseCheck(hanging, 0.05, 0)
    assert [check.missing(), check.missing()] == ["the database does not answer"] * 2
    assert len(asked) == 1
    released.set()
    wait_for(lambda: check.missing() is None, 10, "the answer")


def test_an_answer_is_kept_for_those_who_ask_soon_after() -> None:
    asked: list[int] = []
    kept, not_kept = (DatabaseCheck(lambda: asked.append(1), 10, seconds) for seconds in (3600, 0))
    assert [kept.missing(), kept.missing()] == [None, None]
    assert len(asked) == 1
    assert [not_kept.missing(), not_kept.missing()] == [None, None]
    assert len(asked) == 3
