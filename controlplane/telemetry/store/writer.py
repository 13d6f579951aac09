"""Writing to the store: one transaction a body, durable when `write` returns."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from controlplane.telemetry.store import admission
from controlplane.telemetry.store.admission import UNSEEN, Window
from controlplane.telemetry.store.codec import decode_times, decode_values
from controlplane.telemetry.store.columns import Columns, Ints, bits_of, pack_batch, unpack_batch
from controlplane.telemetry.store.database import StoreUnavailable, connect, transaction, which_file
from wire.problems import Problem
from wire.write_body import Key


class SeriesRemoved(RuntimeError):
    """Retention took series away between the look into `known` and the write: look again, and write again."""


class NotStored(ValueError):
    """Nothing of the body was stored; `problems` says why."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{problem.rule}: {problem.message}" for problem in problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class Owner:
    """Who writes: what it is (`node`, `gateway`, `writer`), and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Writer:
    """Writes from any thread of one process; other processes may write beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        # By owner, so that a look-up also says that this owner may write the series.
        self._ids: dict[Owner, dict[Key, int]] = {}
        self._newest: Ints = np.full(1024, UNSEEN, np.int64)
        self._seen_seq = 0
        self._seen_removals = -1
        # Since someone set it to 0: tells when packing is worth its while.
        self.samples_written = 0

    def known(self, owner: Owner) -> Mapping[Key, int]:
        """Series of an owner that this process has written, by their encoded labels. They passed every check."""
        return self._ids.get(owner, {})

    def write(
        self,
        owner: Owner,
        keys: Sequence[Key],
        fresh: Mapping[Key, Mapping[str, str]],
        samples: tuple[Sequence[int], Sequence[int], Sequence[float]],
        window: Window,
        series_max: int | None,
    ) -> None:
        """Store a body whole or not at all.

        `keys`: one a series; `fresh`: labels of those that are not in `known`; `samples`: how many a series, then their
        times in ms and values. `series_max`: how many series the owner may have; None: as many as it
        likes.
        Raises: NotStored, SeriesRemoved, StoreUnavailable.
        """
        with self._lock:
            connection = self._connect()
            try:
                with transaction(connection):
                    made, columns = self._write(connection, owner, keys, fresh, samples, window, series_max)
                    seq = _append(connection, columns) if len(columns.series) else self._seen_seq
            except StoreUnavailable:
                # The file may have been replaced, or its disk mounted anew: look at it afresh.
                self._forget()
                raise
            # Only now is it true.
            self._ids.setdefault(owner, {}).update(made)
            self._note(columns)
            self._seen_seq = seq
            self.samples_written += len(columns.series)

    def _write(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        keys: Sequence[Key],
        fresh: Mapping[Key, Mapping[str, str]],
        samples: tuple[Sequence[int], Sequence[int], Sequence[float]],
        window: Window,
        series_max: int | None,
    ) -> tuple[dict[Key, int], Columns]:
        """Ids of the fresh series, and the samples that are new."""
        self._follow(connection)
        known = self.known(owner)
        made = self._make_series(connection, owner, fresh, series_max)
        try:
            ids = [made[key] if key in made else known[key] for key in keys]
        except KeyError:
            raise SeriesRemoved from None
        counts, times_ms, values = samples
        numbers = np.repeat(np.array(ids, np.int64), counts)
        columns = Columns(numbers, np.array(times_ms, np.int64), np.array(values, np.float64))
        columns, problems = admission.ordered(columns)
        problems += admission.outside(columns, window)
        late = admission.late(columns, self._newest)
        if late.any() and not problems:
            delayed = columns.take(late)
            new, problems = admission.admit_late(delayed, self._newest, _stored(connection, delayed), window)
            late[late] = ~new
            columns = columns.take(~late)
        if problems:
            raise NotStored(problems)
        return made, columns

    def _make_series(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        fresh: Mapping[Key, Mapping[str, str]],
        series_max: int | None,
    ) -> dict[Key, int]:
        if not fresh:
            return {}
        made: dict[Key, int] = {}
        lacking: dict[str, Mapping[str, str]] = {}
        texts = {key: _text(labels) for key, labels in fresh.items()}
        for key, text in texts.items():
            if row := connection.execute("SELECT id FROM series WHERE labels = ?", (text,)).fetchone():
                made[key] = int(row[0])
            else:
                lacking[text] = fresh[key]
        # Before the first is made: what a hostile body asks for takes long, and others would wait for it.
        if series_max is not None:
            _check_room(connection, owner, len(lacking), series_max)
        ids = {text: _make(connection, owner, text, labels) for text, labels in lacking.items()}
        made.update((key, ids[text]) for key, text in texts.items() if key not in made)
        self._make_room(max(made.values()))
        return made

    def _follow(self, connection: sqlite3.Connection) -> None:
        """Learn what others, and earlier runs, wrote: the newest time of every series."""
        removals, packed_seq = connection.execute("SELECT series_removals, packed_seq FROM moved").fetchone()
        if removals != self._seen_removals or packed_seq > self._seen_seq:
            rows = connection.execute("SELECT id, newest_ms FROM series ORDER BY id").fetchall()
            if rows:
                numbers = np.array(rows, np.int64)
                self._note(Columns(numbers[:, 0], numbers[:, 1], np.empty(0)))
        if removals != self._seen_removals:
            self._ids.clear()
            self._seen_removals = removals
        query = "SELECT seq, data FROM batch WHERE seq > ? ORDER BY seq"
        for seq, data in connection.execute(query, (self._seen_seq,)).fetchall():
            self._note(unpack_batch(data))
            self._seen_seq = seq

    def _note(self, columns: Columns) -> None:
        """Samples that are stored: what comes before them is late."""
        if len(columns.series):
            self._make_room(int(columns.series.max()))
            np.maximum.at(self._newest, columns.series, columns.times_ms)

    def _make_room(self, series: int) -> None:
        if series >= len(self._newest):
            more = np.full(max(series + 1, 2 * len(self._newest)) - len(self._newest), UNSEEN, np.int64)
            self._newest = np.concatenate((self._newest, more))

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, writing=True)
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._ids.clear()
        self._newest = np.full(1024, UNSEEN, np.int64)
        self._seen_seq, self._seen_removals = 0, -1


def writer_of(path: Path) -> Writer:
    """The process's one writer of the file that has this name now. Raises StoreUnavailable."""
    return _writer_of(path, which_file(path))


@lru_cache(maxsize=16)
def _writer_of(path: Path, _file: tuple[int, int]) -> Writer:
    return Writer(path)


def too_many_series(owner: Owner, count: int, series_max: int) -> Problem:
    """A body is refused with which its owner would have `count` series."""
    message = f"{owner} would have {count} series; it may have {series_max}"
    return Problem("/timeseries", "too_many_series", message)


def _text(labels: Mapping[str, str]) -> str:
    return json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _check_room(connection: sqlite3.Connection, owner: Owner, more: int, series_max: int) -> None:
    """Raises NotStored where an owner would have too many series."""
    if not more:
        return
    (count,) = connection.execute("SELECT COUNT(*) FROM series WHERE owner = ?", (str(owner),)).fetchone()
    if count + more > series_max:
        raise NotStored([too_many_series(owner, count + more, series_max)])


def _make(connection: sqlite3.Connection, owner: Owner, text: str, labels: Mapping[str, str]) -> int:
    """The id of a new series."""
    statement = "INSERT INTO series (labels, newest_ms, owner) VALUES (?, ?, ?)"
    cursor = connection.execute(statement, (text, UNSEEN, str(owner)))
    number = int(cursor.lastrowid or 0)
    rows = [(name, value, number) for name, value in labels.items()]
    connection.executemany("INSERT INTO label VALUES (?, ?, ?)", rows)
    return number


def _append(connection: sqlite3.Connection, columns: Columns) -> int:
    cursor = connection.execute(
        "INSERT INTO batch (oldest_ms, newest_ms, samples, data) VALUES (?, ?, ?, ?)",
        (int(columns.times_ms.min()), int(columns.times_ms.max()), len(columns.series), pack_batch(columns)),
    )
    return int(cursor.lastrowid or 0)


def _stored(connection: sqlite3.Connection, columns: Columns) -> dict[tuple[int, int], int]:
    """Bits of the values that are stored at the series and times of `columns`."""
    wanted = set(zip(columns.series.tolist(), columns.times_ms.tolist(), strict=True))
    oldest, newest = int(columns.times_ms.min()), int(columns.times_ms.max())
    found: dict[tuple[int, int], int] = {}

    def note(part: Columns) -> None:
        for series, time_ms, bits in zip(
            part.series.tolist(), part.times_ms.tolist(), bits_of(part.values).tolist(), strict=True
        ):
            if (series, time_ms) in wanted:
                found[series, time_ms] = bits

    ids = np.unique(columns.series)
    chunks = connection.execute(
        "SELECT series, samples, times, bits FROM chunk WHERE series IN (SELECT value FROM json_each(?)) "
        "AND newest_ms >= ? AND oldest_ms <= ?",
        (json.dumps(ids.tolist()), oldest, newest),
    )
    for series, samples, times, bits in chunks:
        note(Columns(np.full(samples, series), decode_times(times, samples), decode_values(bits, samples)))
    batches = connection.execute("SELECT data FROM batch WHERE newest_ms >= ? AND oldest_ms <= ?", (oldest, newest))
    for (data,) in batches:
        part = unpack_batch(data)
        note(part.take(np.isin(part.series, ids)))
    return found
