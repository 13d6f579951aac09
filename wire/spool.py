"""What could not be sent yet, kept on disk in the order in which it came.

One SQLite file of one process: it survives `kill -9` and a power cut, its size is bounded, its mode is 0600.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

log = logging.getLogger("headworks.spool")
T = TypeVar("T")

# Result codes that speak of the disk or of another process; any other says that the file is damaged.
# Source: https://sqlite.org/rescode.html
_ERRNO_OF_CODE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EIO,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
}
_SCHEMA = "CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)"
# A new file in the place of a damaged one: what is removed by a number of the old one must be none of its records.
_NUMBER_ON = """
    INSERT INTO sqlite_sequence (name, seq)
    SELECT 'records', ? WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'records')
"""
_COUNT = "SELECT count(*) FROM records WHERE number > ?"
_OLDEST = "SELECT number, body FROM records WHERE number > ? ORDER BY number LIMIT ?"
_DELETE_OLDEST = "DELETE FROM records WHERE number = (SELECT min(number) FROM records)"
_USED_BYTES = """
    SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
# Another process that holds the file's lock, as a person's sqlite3 can, shall not hold this one as long.
_LOCK_WAIT_SECONDS = 0.05
# A record fills its last page partly, and the empty tables take some.
_PAGE_BYTES = 4096
_EMPTY_BYTES = 4 * _PAGE_BYTES


class Spool:
    """Records by ascending number, which is never given twice. Any thread of one process may call.

    A file that cannot be opened (disk full, not ours) is tried again at every call, so that its process can go on
    without it. A damaged one is moved to `<file>.damaged` and a new one made, as it is for one that was removed.

    `limit_bytes` bounds the file; the space of removed records is used again, not given back to the disk. Beside the
    file, SQLite's log (`-wal`) takes some 4 MB at most.
    """

    def __init__(self, file: Path, *, limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        # Of the open file: device and number.
        self._identity = (0, 0)
        self._overflowing = False
        self._removed_through = 0
        self._handed_out_through = 0
        # Records that had to make room for newer ones, since the start.
        self.dropped = 0
        self.waiting = 0
        try:
            self._do(lambda connection: None)
        except OSError as error:
            log.error("%s", error)

    def put(self, records: Sequence[bytes]) -> None:
        """Keep records, all or none; they are on disk when this returns. Over the limit the oldest go.

        Raises: OSError, with ENOSPC for a full disk.
        """

        def insert(connection: sqlite3.Connection) -> int:
            dropped = 0
            connection.execute("BEGIN IMMEDIATE")
            self._delete_removed(connection)
            for record in records:
                if len(record) + _EMPTY_BYTES > self._limit_bytes:
                    dropped += 1
                    continue
                dropped += self._make_room(connection, len(record))
                connection.execute("INSERT INTO records (body) VALUES (?)", (record,))
            connection.execute("COMMIT")
            self.waiting += len(records) - dropped
            return dropped

        self._note_dropped(self._do(insert))

    def oldest(self, count: int, limit_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with their numbers: at most `count`, at most `limit_bytes` of them unless one is larger.

        Raises: OSError.
        """

        def select(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            taken: list[tuple[int, bytes]] = []
            size = 0
            for row in connection.execute(_OLDEST, (self._removed_through, count)):
                size += len(row[1])
                if taken and size > limit_bytes:
                    break
                taken.append(row)
            if taken:
                self._handed_out_through = max(self._handed_out_through, taken[-1][0])
            else:
                # Whatever a person did to the file: nobody shall ask again at once.
                self.waiting = 0
            return taken

        return self._do(select)

    def remove(self, through: int) -> None:
        """Forget all records up to this number. Raises: OSError.

        A full disk may not even have room for that: they are then deleted later, and come again after a restart.
        """

        def forget(connection: sqlite3.Connection) -> None:
            self._removed_through = through
            self.waiting = self._count(connection)
            self._overflowing = self._overflowing and self.waiting > 0

        self._do(forget)
        try:
            self._do(self._delete_removed)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def close(self) -> None:
        """Give the file back. A later call opens it again."""
        with self._lock:
            self._let_go()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """A damaged file is replaced, and `work` done on the new one. Raises: OSError if it cannot be used now."""
        with self._lock:
            try:
                return self._attempt(work)
            except sqlite3.Error as error:
                if _code(error) in _ERRNO_OF_CODE:
                    raise self._os_error(error) from error
                self._set_aside(error)
            try:
                return self._attempt(work)
            except sqlite3.Error as error:
                raise self._os_error(error) from error

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is not None and self._is_gone():
            log.error("%s was removed, and with it what waited there: a new one is made", self._file)
            self._let_go()
        try:
            if self._connection is None:
                self._connection = self._open()
                self.waiting = self._count(self._connection)
            return work(self._connection)
        except sqlite3.Error as error:
            # Closing rolls back as well, and sees a repaired file afresh. But to open a file takes room on its disk.
            if self._connection is not None and _code(error) == sqlite3.SQLITE_FULL:
                _roll_back(self._connection)
            else:
                self._let_go()
            raise

    def _is_gone(self) -> bool:
        """Whether the open file has its name no more: what is written to it would end with this process."""
        try:
            found = os.stat(self._file, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return (found.st_dev, found.st_ino) != self._identity

    def _open(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite would make it readable by all. Its log takes the file's mode.
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        found = os.fstat(descriptor)
        self._identity = found.st_dev, found.st_ino
        os.close(descriptor)
        connection = sqlite3.connect(
            self._file, timeout=_LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A commit is on disk when it returns, also through a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            connection.execute("SELECT number, body FROM records LIMIT 0")
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            if self._handed_out_through:
                connection.execute(_NUMBER_ON, (self._handed_out_through,))
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _count(self, connection: sqlite3.Connection) -> int:
        count: int = connection.execute(_COUNT, (self._removed_through,)).fetchone()[0]
        return count

    def _delete_removed(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records WHERE number <= ?", (self._removed_through,))

    def _make_room(self, connection: sqlite3.Connection, incoming_bytes: int) -> int:
        """How many of the oldest records went."""
        gone = 0
        while connection.execute(_USED_BYTES).fetchone()[0] + incoming_bytes + _PAGE_BYTES > self._limit_bytes:
            deleted = connection.execute(_DELETE_OLDEST).rowcount
            if not deleted:
                break
            gone += deleted
        return gone

    def _note_dropped(self, count: int) -> None:
        if count and not self._overflowing:
            log.warning("%s has reached its %d bytes: the oldest records go", self._file, self._limit_bytes)
        self._overflowing = self._overflowing or count > 0
        self.dropped += count

    def _set_aside(self, error: sqlite3.Error) -> None:
        damaged = self._file.with_name(f"{self._file.name}.damaged")
        log.error("%s is damaged (%s): it is kept as %s, and a new one is made", self._file, error, damaged)
        # Its log belongs to it: a new file must not be given it.
        for suffix in ("-shm", "-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                self._file.with_name(self._file.name + suffix).replace(f"{damaged}{suffix}")

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _os_error(self, error: sqlite3.Error) -> OSError:
        number = _ERRNO_OF_CODE.get(_code(error), errno.EIO)
        return OSError(number, f"{os.strerror(number)} ({error})", str(self._file))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where it gave none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
