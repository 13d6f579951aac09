"""Batches that are not packed yet, unpacked once a process and shared by its readers."""

from __future__ import annotations

import sqlite3
import threading

from controlplane.telemetry.store.columns import Columns, joined, unpack_batch


class Tail:
    """Batches never change once written, so that only new ones are read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[int, Columns] = {}
        self._joined = joined([])

    def read(self, connection: sqlite3.Connection) -> Columns:
        """All samples of the batches that the connection's transaction sees, in the order of writing."""
        first, last = connection.execute("SELECT MIN(seq), MAX(seq) FROM batch").fetchone()
        with self._lock:
            held = list(self._batches)
            if held and first is not None and (first < held[0] or last < held[-1]):
                # The transaction began before that of another thread, which has moved on meanwhile.
                return joined(list(_since(connection, 0).values()))
            gone = [seq for seq in held if first is None or seq < first]
            fresh = _since(connection, held[-1] if held else 0)
            for seq in gone:
                del self._batches[seq]
            self._batches.update(fresh)
            if gone or fresh:
                self._joined = joined(list(self._batches.values()))
            return self._joined


def _since(connection: sqlite3.Connection, seq: int) -> dict[int, Columns]:
    rows = connection.execute("SELECT seq, data FROM batch WHERE seq > ? ORDER BY seq", (seq,))
    return {number: unpack_batch(data) for number, data in rows}
