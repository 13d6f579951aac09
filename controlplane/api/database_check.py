"""Whether the database can be written now, answered in bounded time."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from django.db import Error, connection, transaction
from django.db.models import F

from controlplane.core.models import FieldKeyCanary

# A stopped server keeps its connections open and answers nothing, so only a deadline of our own ends the wait.
WAIT_SECONDS = 2.0
# How often anybody who asks can cause a write.
KEPT_SECONDS = 1.0
_BUSY_MS = 500
# With less on its disk, SQLite writes over what is in its log and refuses whatever makes that longer.
_FREE_BYTES_MIN = 1 << 20
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class DatabaseCheck:
    """Runs `check` in a thread of its own, one at a time: while one hangs, the others who ask wait for the same."""

    def __init__(self, check: Callable[[], str | None], wait_seconds: float, kept_seconds: float) -> None:
        self._check, self._wait_seconds, self._kept_seconds = check, wait_seconds, kept_seconds
        self._lock = threading.Lock()
        self._asked: Future[str | None] | None = None
        self._answered_at = 0.0

    def missing(self) -> str | None:
        """What lacks, None where nothing does. Returns within `wait_seconds`."""
        with self._lock:
            if self._asked is None or (
                self._asked.done() and time.monotonic() - self._answered_at >= self._kept_seconds
            ):
                self._asked = Future()
                threading.Thread(target=self._ask, args=(self._asked,), name="database-check", daemon=True).start()
            asked = self._asked
        try:
            return asked.result(self._wait_seconds)
        except TimeoutError:
            return "the database does not answer"

    def _ask(self, asked: Future[str | None]) -> None:
        try:
            answer = self._check()
        except Exception as error:
            answer = f"the database cannot be asked: {type(error).__name__}"
        self._answered_at = time.monotonic()
        asked.set_result(answer)


def write() -> str | None:
    """Write what is there already: a full disk, a read-only file and a standby server refuse that, and all can read.

    A database that another writer holds just now can be written.
    """
    connected = False
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}" if connection.vendor == "sqlite" else "SELECT 1")
        connected = True
        with transaction.atomic():
            _write_the_same()
    except Error as error:
        if getattr(error.__cause__, "sqlite_errorcode", None) in _BUSY:
            return None
        return "the database cannot be written" if connected else "the database does not answer"
    finally:
        connection.close()
    return _full_disk()


def _full_disk() -> str | None:
    file = Path(str(connection.settings_dict["NAME"]))
    if connection.vendor != "sqlite" or not file.exists() or shutil.disk_usage(file.parent).free >= _FREE_BYTES_MIN:
        return None
    return "the database cannot be written: its disk is full"


def _write_the_same() -> None:
    if connection.vendor != "sqlite":
        FieldKeyCanary.objects.update(sealed=F("sealed"))
        return
    # SQLite leaves a row alone that an UPDATE would not change.
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA user_version")
        (version,) = cursor.fetchone()
        cursor.execute(f"PRAGMA user_version = {version}")


database_check = DatabaseCheck(write, WAIT_SECONDS, KEPT_SECONDS)
