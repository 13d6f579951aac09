"""Reading the store: label sets and samples of the series that matchers choose."""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from controlplane.telemetry.store.codec import decode_times, decode_values
from controlplane.telemetry.store.columns import Columns, Ints, joined
from controlplane.telemetry.store.database import connect, transaction, which_file
from controlplane.telemetry.store.matching import Counted, Matcher, matching_series
from controlplane.telemetry.store.tail import Tail

Labels = dict[str, str]

_IDLE_CONNECTIONS = 4
# Series come and go, and this process with its memory of them stays. Forgotten all at once, and read again: 1 KB each.
_LABELS_REMEMBERED_MAX = 200_000
# Numbers fit 16 bits and are then sorted by radix, five times as fast.
_NARROW = 1 << 16


class Selection(NamedTuple):
    """`columns.series` are row numbers into `labels`; sorted by row, then time, no time twice in a row."""

    labels: list[Labels]
    columns: Columns


class Reader:
    """Reads from any thread of one process. Every call raises StoreUnavailable where the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue(_IDLE_CONNECTIONS)
        self._tail = Tail()
        self._labels: dict[int, Labels] = {}
        self._lock = threading.Lock()

    def select(self, matchers: Sequence[Matcher], after_ms: int, until_ms: int, counted: Counted) -> Selection:
        """Samples with `after_ms` < time <= `until_ms`.

        `counted` is told how many samples come next, before they are unpacked; it may raise to end the reading.
        """
        with self._moment() as connection:
            ids = matching_series(connection, matchers, counted)
            tail = self._tail.read(connection)
            columns = joined(
                [
                    _packed(connection, ids, after_ms, until_ms, counted),
                    _unpacked(tail, ids, after_ms, until_ms, counted),
                ]
            )
            columns = _sorted(columns)
            # Only series with a sample in the range count.
            first = np.diff(columns.series, prepend=-1) != 0
            labels = self._labels_of(connection, ids[columns.series[first]])
        return Selection(labels, columns._replace(series=np.cumsum(first) - 1))

    def series(
        self, match_sets: Sequence[Sequence[Matcher]], after_ms: int, until_ms: int, counted: Counted
    ) -> list[Labels]:
        """Label sets with samples between the times that any of the sets of matchers chooses.

        `counted` is told how many series were chosen, before their labels are read; it may raise to end the reading.
        """
        with self._moment() as connection:
            chosen = [matching_series(connection, matchers, counted) for matchers in match_sets]
            ids = np.unique(np.concatenate([np.empty(0, np.int64), *chosen]))
            counted(len(ids))
            alive = _alive(connection, ids, self._tail.read(connection), after_ms, until_ms)
            return self._labels_of(connection, alive)

    def label_names(self) -> list[str]:
        with self._moment() as connection:
            return [name for (name,) in connection.execute("SELECT DISTINCT name FROM label ORDER BY name")]

    def label_values(self, name: str) -> list[str]:
        query = "SELECT DISTINCT value FROM label WHERE name = ? ORDER BY value"
        with self._moment() as connection:
            return [value for (value,) in connection.execute(query, (name,))]

    @contextmanager
    def _moment(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction: everything read in it is of one moment."""
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = connect(self._path, writing=False)
        try:
            with transaction(connection, writing=False):
                yield connection
        finally:
            try:
                self._idle.put_nowait(connection)
            except queue.Full:
                connection.close()

    def _labels_of(self, connection: sqlite3.Connection, ids: Ints) -> list[Labels]:
        wanted = ids.tolist()
        with self._lock:
            if len(self._labels) > _LABELS_REMEMBERED_MAX:
                self._labels.clear()
            for number in wanted:
                if number not in self._labels:
                    (text,) = connection.execute("SELECT labels FROM series WHERE id = ?", (number,)).fetchone()
                    self._labels[number] = json.loads(text)
            return [self._labels[number] for number in wanted]


def reader_of(path: Path) -> Reader:
    """The process's one reader of the file that has this name now. Raises StoreUnavailable."""
    return _reader_of(path, which_file(path))


@lru_cache(maxsize=16)
def _reader_of(path: Path, _file: tuple[int, int]) -> Reader:
    return Reader(path)


_CHUNKS = """
SELECT series, samples, times, bits FROM chunk WHERE series IN (SELECT value FROM json_each(?))
AND newest_ms > ? AND oldest_ms <= ? ORDER BY series, newest_ms
"""


def _packed(connection: sqlite3.Connection, ids: Ints, after_ms: int, until_ms: int, counted: Counted) -> Columns:
    numbers, lengths, times, values = [], [], [], []
    row_of = {number: row for row, number in enumerate(ids.tolist())}
    for series, samples, time_blob, value_blob in connection.execute(
        _CHUNKS, (json.dumps(ids.tolist()), after_ms, until_ms)
    ):
        counted(samples)
        numbers.append(row_of[series])
        lengths.append(samples)
        times.append(decode_times(time_blob, samples))
        values.append(decode_values(value_blob, samples))
    if not numbers:
        return joined([])
    columns = Columns(np.repeat(numbers, lengths), np.concatenate(times), np.concatenate(values))
    inside = (columns.times_ms > after_ms) & (columns.times_ms <= until_ms)
    return columns if inside.all() else columns.take(inside)


def _unpacked(tail: Columns, ids: Ints, after_ms: int, until_ms: int, counted: Counted) -> Columns:
    if not len(ids) or not len(tail.series):
        return joined([])
    row_of = np.full(max(int(ids[-1]), int(tail.series.max())) + 1, -1, np.int64)
    row_of[ids] = np.arange(len(ids))
    rows = row_of[tail.series]
    where = np.flatnonzero((rows >= 0) & (tail.times_ms > after_ms) & (tail.times_ms <= until_ms))
    counted(len(where))
    return Columns(rows[where], tail.times_ms[where], tail.values[where])


def _sorted(columns: Columns) -> Columns:
    """By row, then time. Parts come in order of time but for late samples."""
    rows = columns.series
    if not len(rows):
        return columns
    if np.any(np.diff(rows) < 0):
        narrow = rows.astype(np.uint16) if int(rows.max()) < _NARROW else rows
        columns = columns.take(np.argsort(narrow, kind="stable"))
    if np.any((np.diff(columns.times_ms) < 0) & (np.diff(columns.series) == 0)):
        columns = columns.take(np.lexsort((columns.times_ms, columns.series)))
    return columns


_ALIVE = """
SELECT DISTINCT series FROM chunk WHERE series IN (SELECT value FROM json_each(?)) AND newest_ms > ? AND oldest_ms <= ?
"""


def _alive(connection: sqlite3.Connection, ids: Ints, tail: Columns, after_ms: int, until_ms: int) -> Ints:
    packed = [series for (series,) in connection.execute(_ALIVE, (json.dumps(ids.tolist()), after_ms, until_ms))]
    recent = tail.series[(tail.times_ms > after_ms) & (tail.times_ms <= until_ms)]
    return np.union1d(np.array(packed, np.int64), np.intersect1d(recent, ids))
