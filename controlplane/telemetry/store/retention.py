"""Retention: forget samples by age and by the file's size, and give the space back to the disk."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from controlplane.telemetry.store.admission import UNSEEN
from controlplane.telemetry.store.columns import unpack_batch
from controlplane.telemetry.store.database import StoreUnavailable, connect, transaction
from controlplane.telemetry.store.packing import only_one
from controlplane.telemetry.store.writer import Owner

# Rows, or pages, a transaction: writers wait for no longer than this takes.
_STEP = 500
# How long writers wait, at most, while readers leave the log so that it can be emptied.
_LOG_WAIT_MS = 500
# The most that a chunk takes, so that removing by size does not remove more than it must.
_CHUNK_BYTES = 4096


class Removed(NamedTuple):
    """Chunks and series that were removed, and pages given back to the disk."""

    chunks: int
    series: int
    pages: int


def prune(path: Path, older_than_ms: int, size_bytes: int) -> Removed:
    """Remove chunks that ended before `older_than_ms`; then the oldest ones until the file holds at most `size_bytes`.

    Series without samples go too. Batches are packed before they can be removed. Raises StoreUnavailable.
    """
    with only_one(path) as alone, closing(connect(path, writing=True)) as connection:
        if not alone:
            return Removed(0, 0, 0)
        try:
            chunks = _remove_old(connection, older_than_ms) + _remove_excess(connection, size_bytes)
            series = _remove_series(connection, older_than_ms)
            return Removed(chunks, series, _give_back(connection))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the metric store cannot be pruned now: {error}") from error


def newest_ms(path: Path, besides: Owner) -> int | None:
    """The time of the newest packed sample that another owner wrote; None: there is none. Raises StoreUnavailable."""
    query = "SELECT MAX(newest_ms) FROM series WHERE owner <> ? AND newest_ms > ?"
    with closing(connect(path, writing=False)) as connection, transaction(connection, writing=False):
        (newest,) = connection.execute(query, (str(besides), int(UNSEEN))).fetchone()
    return newest if newest is None else int(newest)


def _remove_old(connection: sqlite3.Connection, older_than_ms: int) -> int:
    chunks = 0
    while removed := _remove_oldest(connection, older_than_ms, _STEP):
        chunks += removed
    return chunks


def _remove_excess(connection: sqlite3.Connection, size_bytes: int) -> int:
    chunks = 0
    while (excess := _used_bytes(connection) - size_bytes) > 0:
        removed = _remove_oldest(connection, None, min(_STEP, excess // _CHUNK_BYTES + 1))
        if not removed:
            break
        chunks += removed
    return chunks


def _remove_oldest(connection: sqlite3.Connection, before_ms: int | None, count: int) -> int:
    with transaction(connection):
        rows = connection.execute(
            "SELECT series, newest_ms FROM chunk WHERE ? IS NULL OR newest_ms < ? ORDER BY newest_ms LIMIT ?",
            (before_ms, before_ms, count),
        ).fetchall()
        connection.executemany("DELETE FROM chunk WHERE series = ? AND newest_ms = ?", rows)
    return len(rows)


_ENDED = "SELECT id FROM series WHERE newest_ms < ? OR NOT EXISTS (SELECT 1 FROM chunk WHERE chunk.series = series.id)"


def _remove_series(connection: sqlite3.Connection, older_than_ms: int) -> int:
    """Series without a chunk, or that ended before the oldest sample that is kept, and that have no unpacked sample."""
    # Looked for first without holding up writers; there is seldom any.
    if not connection.execute(_ENDED, (older_than_ms,)).fetchone():
        return 0
    with transaction(connection):
        ended = {series for (series,) in connection.execute(_ENDED, (older_than_ms,))}
        for (data,) in connection.execute("SELECT data FROM batch"):
            ended.difference_update(unpack_batch(data).series.tolist())
        for series in ended:
            (labels,) = connection.execute("SELECT labels FROM series WHERE id = ?", (series,)).fetchone()
            rows = [(name, value, series) for name, value in json.loads(labels).items()]
            connection.executemany("DELETE FROM label WHERE name = ? AND value = ? AND series = ?", rows)
            connection.execute("DELETE FROM chunk WHERE series = ?", (series,))
            connection.execute("DELETE FROM series WHERE id = ?", (series,))
        if ended:
            connection.execute("UPDATE moved SET series_removals = series_removals + 1")
    return len(ended)


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (_pragma(connection, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _give_back(connection: sqlite3.Connection) -> int:
    free = _pragma(connection, "freelist_count")
    given = 0
    while given < free:
        # As a script: `execute` stops after the first page, since this statement has no columns.
        connection.executescript(f"PRAGMA incremental_vacuum({_STEP})")
        given += _STEP
    # The file itself shrinks when the log is written back to it: after a later write, where a reader stays for longer.
    connection.execute(f"PRAGMA busy_timeout={_LOG_WAIT_MS}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return free - _pragma(connection, "freelist_count")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
