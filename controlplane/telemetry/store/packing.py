"""Packing: from batches, as they were written, to compressed chunks of one series each."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from controlplane.telemetry.store.codec import decode_times, decode_values, encode_times, encode_values
from controlplane.telemetry.store.columns import Columns, Damaged, Floats, Ints, joined, unpack_batch
from controlplane.telemetry.store.database import StoreUnavailable, connect, transaction

log = logging.getLogger(__name__)

# An hour at 15 s. Longer chunks pack little better and cost more to read in part.
CHUNK_SAMPLES = 240
# However much has gathered, memory stays bounded, and writers wait for no more than the rows of this many.
_SAMPLES_AT_ONCE = 500_000

_Chunk = tuple[int, int, int, int, bytes, bytes]


def pack(path: Path, older_than_ms: int) -> int:
    """Pack everything, if the oldest sample that is not packed is older than `older_than_ms`; samples packed.

    One process packs at a time; another that asks meanwhile gets 0. What is read and computed takes no lock of the
    store; writing takes it for as long as the rows take. Raises StoreUnavailable.
    """
    with only_one(path) as alone, closing(connect(path, writing=True)) as connection:
        if not alone:
            return 0
        with transaction(connection, writing=False):
            oldest, last = connection.execute("SELECT MIN(oldest_ms), MAX(seq) FROM batch").fetchone()
        if oldest is None or oldest >= older_than_ms:
            return 0
        packed = 0
        while (samples := _pack_first(connection, last)) is not None:
            packed += samples
        return packed


def _pack_first(connection: sqlite3.Connection, last_seq: int) -> int | None:
    """Pack the first batches, none after `last_seq`, in one transaction; samples packed, None where there is none."""
    with transaction(connection, writing=False):
        if not (batches := _first(connection, last_seq)):
            return None
        columns = joined([part for seq, data in batches if (part := _readable(seq, data)) is not None])
        old, new = _repacked(connection, columns)
    packed_seq = batches[-1][0]
    with transaction(connection):
        connection.executemany("DELETE FROM chunk WHERE series = ? AND newest_ms = ?", old)
        # In the place of a damaged one that ends with the same sample.
        connection.executemany("INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?)", new)
        connection.executemany(
            "UPDATE series SET newest_ms = MAX(newest_ms, ?) WHERE id = ?", [(row[1], row[0]) for row in new]
        )
        connection.execute("DELETE FROM batch WHERE seq <= ?", (packed_seq,))
        connection.execute("UPDATE moved SET packed_seq = ?", (packed_seq,))
    return len(columns.series)


def _readable(seq: int, data: bytes) -> Columns | None:
    """A damaged batch is lost: it would hold up all that come after it, and readers would meet it again and again."""
    try:
        return unpack_batch(data)
    except Damaged as error:
        log.error("samples of write %d are lost: %s", seq, error)
        return None


def _first(connection: sqlite3.Connection, last_seq: int) -> list[tuple[int, bytes]]:
    batches, samples = [], 0
    query = "SELECT seq, samples, data FROM batch WHERE seq <= ? ORDER BY seq"
    for seq, count, data in connection.execute(query, (last_seq,)):
        batches.append((seq, data))
        samples += count
        if samples >= _SAMPLES_AT_ONCE:
            break
    return batches


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Whether this is the one process and thread that rearranges the file, until the block ends.

    Raises StoreUnavailable.
    """
    try:
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"the lock of {path} cannot be opened: {error}") from error
    try:
        yield _locked(descriptor, path)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreUnavailable(f"the lock of {path} cannot be taken: {error}") from error
    return True


def _repacked(connection: sqlite3.Connection, columns: Columns) -> tuple[list[tuple[int, int]], list[_Chunk]]:
    """Keys of chunks that go, and chunks that come."""
    old: list[tuple[int, int]] = []
    new: list[_Chunk] = []
    if not len(columns.series):
        return old, new
    columns = columns.take(np.lexsort((columns.times_ms, columns.series)))
    numbers, starts = np.unique(columns.series, return_index=True)
    ends = [*starts[1:].tolist(), len(columns.series)]
    for series, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        times, values = columns.times_ms[start:end], columns.values[start:end]
        gone, times, values = _with_stored(connection, series, times, values)
        old += gone
        new += _chunks(series, times, values)
    return old, new


def _with_stored(
    connection: sqlite3.Connection, series: int, times: Ints, values: Floats
) -> tuple[list[tuple[int, int]], Ints, Floats]:
    """New samples joined with those of the chunks that they fall into, and of the newest one if it has room."""
    touched = connection.execute(
        "SELECT newest_ms, samples, times, bits FROM chunk WHERE series = ? AND newest_ms >= ?", (series, int(times[0]))
    ).fetchall()
    if not touched:
        touched = connection.execute(
            "SELECT newest_ms, samples, times, bits FROM chunk WHERE series = ? AND samples < ? "
            "AND newest_ms = (SELECT MAX(newest_ms) FROM chunk WHERE series = ?)",
            (series, CHUNK_SAMPLES, series),
        ).fetchall()
    old: list[tuple[int, int]] = []
    for newest, count, time_blob, value_blob in touched:
        try:
            stored = decode_times(time_blob, count), decode_values(value_blob, count)
        except Damaged as error:
            log.error("a chunk of series %d is left as it is: %s", series, error)
            continue
        old.append((series, newest))
        times, values = np.concatenate((stored[0], times)), np.concatenate((stored[1], values))
    order = np.argsort(times, kind="stable")
    return old, times[order], values[order]


def _chunks(series: int, times: Ints, values: Floats) -> Iterator[_Chunk]:
    for start in range(0, len(times), CHUNK_SAMPLES):
        part, kept = times[start : start + CHUNK_SAMPLES], values[start : start + CHUNK_SAMPLES]
        yield series, int(part[-1]), int(part[0]), len(part), encode_times(part), encode_values(kept)
