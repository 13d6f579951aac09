"""Checked bodies on their way to the external server: on disk, in the order in which they came, until it has them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.telemetry.metrics import SPOOL_BYTES
from controlplane.telemetry.store.database import StoreUnavailable, make_file, transaction

FILE_NAME = "remote_write.sqlite3"
_BUSY_SECONDS = 5.0
_TABLE = "CREATE TABLE IF NOT EXISTS body (number INTEGER PRIMARY KEY AUTOINCREMENT, packed BLOB NOT NULL)"
_USED_BYTES = """
SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
# Some hundred thousand samples: where the server is away for hours, thousands of these wait.
_BATCH_BODIES = 256
# 1 MiB, which the next bodies fill again.
_FREE_PAGES = 256


class Full(RuntimeError):
    """So much waits already that no more is taken."""


class Outgoing:
    """One SQLite file that outlives `kill -9` and power cuts. Any thread of any process of this machine may call.

    What is removed gives its space back. Every call raises StoreUnavailable where the file cannot be used now.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def put(self, body: bytes, limit_bytes: int) -> None:
        """Keep a body; it is on disk when this returns. Raises Full beyond `limit_bytes`.

        Into an empty file any body goes, however small the limit: it would otherwise be sent again for ever.
        """
        with self._transaction() as connection:
            (used,) = connection.execute(_USED_BYTES).fetchone()
            if used + len(body) > limit_bytes and _first(connection) is not None:
                raise Full(f"{used} bytes wait for the metrics server, of {limit_bytes}")
            connection.execute("INSERT INTO body (packed) VALUES (?)", (body,))
            SPOOL_BYTES.set(used + len(body))

    def oldest(self, limit_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest bodies with their numbers, which ascend: `limit_bytes` of them at most, but one at least."""
        taken: list[tuple[int, bytes]] = []
        size = 0
        with self._transaction(writing=False) as connection:
            rows = connection.execute("SELECT number, packed FROM body ORDER BY number LIMIT ?", (_BATCH_BODIES,))
            for number, body in rows:
                size += len(body)
                if taken and size > limit_bytes:
                    break
                taken.append((number, body))
        return taken

    def remove(self, through: int) -> None:
        """Forget all bodies up to this number: the server has them."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM body WHERE number <= ?", (through,))
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            SPOOL_BYTES.set(*connection.execute(_USED_BYTES).fetchone())
        if free > _FREE_PAGES:
            with self._opened() as connection:
                # Each step of it gives one page back, and `execute` makes but one.
                connection.executescript("PRAGMA incremental_vacuum")

    def waits(self) -> bool:
        """Whether there is a body."""
        with self._transaction(writing=False) as connection:
            return _first(connection) is not None

    def close(self) -> None:
        """Give the file back. A later call opens it again."""
        with self._lock:
            self._let_go()

    @contextmanager
    def _transaction(self, *, writing: bool = True) -> Iterator[sqlite3.Connection]:
        with self._opened() as connection, transaction(connection, writing=writing):
            yield connection

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            try:
                yield self._connection
            except (StoreUnavailable, sqlite3.Error) as error:
                # The file may have been replaced, or its disk mounted anew: look at it afresh.
                self._let_go()
                raise StoreUnavailable(f"{self._path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            make_file(self._path)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"{self._path} cannot be opened: {error}") from error
        try:
            # Before the first table: a file's way to give space back is fixed from then on.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_TABLE)
        except sqlite3.Error as error:
            connection.close()
            raise StoreUnavailable(f"{self._path} cannot be used: {error}") from error
        return connection

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _first(connection: sqlite3.Connection) -> tuple[int] | None:
    row: tuple[int] | None = connection.execute("SELECT number FROM body LIMIT 1").fetchone()
    return row
