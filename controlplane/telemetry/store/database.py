"""The store's file: its tables, and connections that write or read it."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controlplane.telemetry.store.columns import Damaged

FILE_NAME = "metrics.sqlite3"
_BUSY_SECONDS = 5.0
_CACHE_KIB = 32 << 10
# A row without a rowid keeps a quarter of a page beside its neighbours and takes whole pages for the rest: the largest
# chunks, of values that do not compress, fit that.
_PAGE_BYTES = 16 << 10
_LOG_PAGES = (4 << 20) // _PAGE_BYTES
_making = threading.Lock()

# Ids grow and are never given twice (AUTOINCREMENT), so that what a process remembers by id stays true.
_TABLES = """
CREATE TABLE series (id INTEGER PRIMARY KEY AUTOINCREMENT, labels TEXT NOT NULL UNIQUE, newest_ms INTEGER NOT NULL);
CREATE TABLE label (
    name TEXT NOT NULL, value TEXT NOT NULL, series INTEGER NOT NULL, PRIMARY KEY (name, value, series)
) WITHOUT ROWID;
CREATE TABLE batch (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, oldest_ms INTEGER NOT NULL, newest_ms INTEGER NOT NULL,
    samples INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE TABLE chunk (
    series INTEGER NOT NULL, newest_ms INTEGER NOT NULL, oldest_ms INTEGER NOT NULL, samples INTEGER NOT NULL,
    times BLOB NOT NULL, bits BLOB NOT NULL, PRIMARY KEY (series, newest_ms)
) WITHOUT ROWID;
CREATE INDEX chunk_age ON chunk (newest_ms);
CREATE TABLE moved (series_removals INTEGER NOT NULL, packed_seq INTEGER NOT NULL);
INSERT INTO moved VALUES (0, 0);
"""
# Number: the order of writing.
_METADATA = """
CREATE TABLE metadata (
    number INTEGER PRIMARY KEY AUTOINCREMENT, family TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, help TEXT NOT NULL,
    unit TEXT NOT NULL
);
"""
# Blobs have checksums from then on, which a program that does not know them would take for samples.
_CHECKSUMS = ""
# Whose series it is. Before, labels alone said so: those of nodes and gateways, which recorded series may have too.
_OWNERS = """
ALTER TABLE series ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE series SET owner = COALESCE(
    'gateway ' || json_extract(labels, '$.gateway'), 'node ' || json_extract(labels, '$.node'), ''
) WHERE json_extract(labels, '$.__name__') NOT LIKE '%:%:%';
CREATE INDEX series_owner ON series (owner);
"""
# What each version added to the one before.
_VERSIONS = (_TABLES, _METADATA, _CHECKSUMS, _OWNERS)
VERSION = len(_VERSIONS)


class StoreUnavailable(RuntimeError):
    """The store cannot be read or written now: its disk is full, its file is locked for too long or damaged."""


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """A connection that any thread may use, one at a time; it begins no transaction by itself. Raises StoreUnavailable.

    The file is made (mode 0600; SQLite gives its log the same) where there is none.
    """
    which_file(path)
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the metric store {path} cannot be opened: {error}") from error
    try:
        _prepare(connection)
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        # FULL: what was answered survives a power cut too.
        connection.execute("PRAGMA synchronous=FULL" if writing else "PRAGMA query_only=ON")
    except (sqlite3.Error, StoreUnavailable) as error:
        connection.close()
        raise StoreUnavailable(f"the metric store {path} cannot be used: {error}") from error
    return connection


def which_file(path: Path) -> tuple[int, int]:
    """Device and number of the file that has this name now, made where there is none. Raises StoreUnavailable.

    What a process knows and holds open of a file that was removed since is not the next one's: what it wrote there
    would be gone with the process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_file(path)
        found = path.stat()
    except OSError as error:
        raise StoreUnavailable(f"the metric store {path} cannot be opened: {error}") from error
    return found.st_dev, found.st_ino


def make_file(path: Path) -> None:
    """Make an SQLite file (mode 0600) where there is none. One that is there is not even opened. Raises OSError.

    Closing it would release every lock that this process's connections hold on it. Another process would then take
    itself for the last one, and remove the log that these connections go on writing to: what they commit is lost, and
    the file is damaged. Source: https://sqlite.org/howtocorrupt.html, 2.2.
    """
    with _making, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare(connection: sqlite3.Connection) -> None:
    # Before the first table: a file's pages and its way to give space back are fixed from then on.
    if _version(connection) == 0:
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
    if _version(connection) < VERSION:
        with transaction(connection):
            # Another process may have done it meanwhile.
            if (found := _version(connection)) < VERSION:
                for statement in "".join(_VERSIONS[found:]).strip().split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={VERSION}")
    if (found := _version(connection)) != VERSION:
        raise StoreUnavailable(f"it has version {found}; this program reads and writes version {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


@contextmanager
def transaction(connection: sqlite3.Connection, *, writing: bool = True) -> Iterator[None]:
    """All or nothing; a reading one sees one moment of the store. Raises StoreUnavailable."""
    try:
        connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except (sqlite3.Error, Damaged) as error:
        raise StoreUnavailable(f"the metric store cannot be used now: {error}") from error
