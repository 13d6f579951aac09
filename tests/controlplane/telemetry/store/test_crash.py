"""What the store holds after processes were killed, its disk was full, or its file was damaged."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.matching import Matcher, Operator
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.writer import Owner, Writer
from tests.controlplane.telemetry.filling import ANY_TIME, named, store
from tests.disks import mounted
from tests.services import wait_for
from wire.write_body import key_of

OWNER = Owner("node", "n-1")
ALL = Matcher("__name__", Operator.MATCHES, ".+")
FOREVER = 2**60
SERIES = 4
ROUNDS = 6


def writes(path: Path) -> dict[str, list[int]]:
    """Times of what each writer wrote: in all of its series, as each sample's value, and each once."""
    labels, columns = Reader(path).select((ALL,), -FOREVER, FOREVER, lambda count: None)
    assert np.array_equal(columns.times_ms, columns.values)
    found: dict[str, list[list[int]]] = {}
    for row, series in enumerate(labels):
        times = columns.times_ms[columns.series == row].tolist()
        assert times == sorted(set(times))
        found.setdefault(series["writer"], []).append(times)
    assert all(len(rows) == SERIES and rows.count(rows[0]) == SERIES for rows in found.values())
    return {writer: rows[0] for writer, rows in found.items()}


class Writing:
    """A process that writes, and what it said that it had stored."""

    def __init__(self, path: Path, name: str, begin: int) -> None:
        command = [sys.executable, "-m", "tests.controlplane.telemetry.store.writing_process", str(path), name]
        self._process = subprocess.Popen([*command, str(begin), str(SERIES)], stdout=subprocess.PIPE, text=True)
        self.answered: list[int] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A killed process may leave half a line.
            if line.endswith("\n"):
                self.answered.append(int(line))

    def wait_for_answers(self, number: int) -> None:
        wait_for(lambda: len(self.answered) >= number, 60, "writes", 0.001)

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> list[int]:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self.answered


def test_killed_at_any_moment_two_processes_lose_nothing_that_was_answered(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    dice = random.Random(os.urandom(8))
    answered: dict[str, list[int]] = {"n-1": [], "n-2": []}
    for turn in range(1, ROUNDS + 1):
        processes = {name: Writing(path, name, turn * 1_000_000) for name in answered}
        try:
            for process in processes.values():
                process.wait_for_answers(dice.randrange(1, 30))
            # A third process reads while they write, pack and prune.
            assert writes(path).keys() == answered.keys()
            assert all(process.running() for process in processes.values())
        finally:
            for name, process in processes.items():
                answered[name] += process.kill()
        found = writes(path)
        for name, times in answered.items():
            assert set(times) <= set(found[name])
            # Beside what was answered, at most the write that each kill interrupted.
            assert len(found[name]) <= len(times) + turn
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    before = writes(path)
    pack(path, FOREVER)
    assert writes(path) == before


def test_killed_before_any_of_its_statements_packing_has_done_all_or_nothing(tmp_path):
    path, copies = tmp_path / "metrics.sqlite3", tmp_path / "copies"
    copies.mkdir()

    def write(*times: int) -> None:
        for at in times:
            rows = [named("a", [(at, float(at))], n=str(number), writer="n-1") for number in range(SERIES)]
            store(path, rows, OWNER)

    write(1, 2, 5)
    pack(path, FOREVER)
    # Some fall into chunks that are there: those are taken out and come back larger.
    write(3, 4, 6)
    command = [sys.executable, "-m", "tests.controlplane.telemetry.store.killed_packing", path, copies]
    subprocess.run(command, check=True, timeout=60)
    # Batches that are not packed, samples in chunks; and what tells other writers of it.
    states = []
    for number in range(1, len(list(copies.glob("*.sqlite3"))) + 1):
        copy = copies / f"{number}.sqlite3"
        assert writes(copy) == {"n-1": [1, 2, 3, 4, 5, 6]}
        with closing(sqlite3.connect(copy)) as connection:
            counts = connection.execute("SELECT (SELECT COUNT(*) FROM batch), SUM(samples) FROM chunk").fetchone()
            told = connection.execute("SELECT packed_seq, MIN(newest_ms), MAX(newest_ms) FROM moved, series").fetchone()
            states.append((*counts, *told))
    before, after = (3, 3 * SERIES, 3, 5, 5), (0, 6 * SERIES, 6, 6, 6)
    done = states.index(after)
    assert states == [before] * done + [after] * (len(states) - done)
    # Each of the rows that go and come is a statement.
    assert done > 2 * SERIES


def test_a_full_disk_refuses_writes_and_keeps_what_was_taken(tmp_path):
    with mounted(tmp_path / "disk", "size=2m") as disk:
        path, ballast = disk / "metrics.sqlite3", disk / "ballast"
        ballast.write_bytes(b"x" * (1 << 20))
        dice = random.Random(1)
        taken: list[int] = []

        def write(at: int) -> None:
            rows = [named("a", [(at, dice.random())], n=str(number), writer="n-1") for number in range(200)]
            store(path, rows, OWNER)
            taken.append(at)

        def fill() -> None:
            for at in range(10_000):
                write(at)

        with pytest.raises(StoreUnavailable, match="full"):
            fill()
        assert len(taken) > 5
        reader = Reader(path)

        def read() -> list[int]:
            first = (ALL, Matcher("n", Operator.EQUAL, "0"))
            times: list[int] = reader.select(first, -FOREVER, FOREVER, lambda count: None).columns.times_ms.tolist()
            return times

        assert read() == taken
        for rearrange in (lambda: pack(path, FOREVER), lambda: prune(path, len(taken), FOREVER)):
            with suppress(StoreUnavailable):
                rearrange()
            assert read() == taken
        ballast.unlink()
        pack(path, FOREVER)
        write(10_000)
        assert read() == taken


def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    times = range(20_000)
    rows = [named("a", [(at, at / 7) for at in times], n=str(number)) for number in range(3)]
    Writer(path).write(
        OWNER, [key_of(row.labels) for row in rows], {key_of(row.labels): row.labels for row in rows},
        ([len(times)] * 3, [*times] * 3, [at / 7 for at in times] * 3), ANY_TIME, 10,
    )  # fmt: skip
    pack(path, FOREVER)
    prune(path, -FOREVER, FOREVER)
    # All but the first page, which says what tables there are.
    with path.open("r+b") as file:
        file.seek(1 << 14)
        file.write(os.urandom(path.stat().st_size - (1 << 14)))
    damaged = path.read_bytes()
    for use in (
        lambda: Reader(path).select((ALL,), -FOREVER, FOREVER, lambda count: None),
        lambda: prune(path, FOREVER, FOREVER),
    ):
        with pytest.raises(StoreUnavailable, match="metric store"):
            use()
    assert path.read_bytes() == damaged


def test_a_chunk_that_does_not_unpack_is_named(tmp_path):
    """SQLite itself takes its bytes for whole."""
    path = tmp_path / "metrics.sqlite3"
    store(path, [named("a", [(at, at / 7) for at in range(500)])], OWNER)
    pack(path, FOREVER)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chunk SET bits = substr(bits, 1, 20)")
    with pytest.raises(StoreUnavailable, match="values of a chunk"):
        Reader(path).select((ALL,), -FOREVER, FOREVER, lambda count: None)


def test_damaged_samples_hold_up_none_that_come_after_them(tmp_path, caplog):
    """Packing goes round a chunk that cannot be read, and a write that cannot; what is told of each is its number."""
    path = tmp_path / "metrics.sqlite3"
    writer = Writer(path)

    def write(begin: int, end: int) -> None:
        key, labels = key_of({"__name__": "a"}), {"__name__": "a"}
        fresh = {} if key in writer.known(OWNER) else {key: labels}
        columns = ([end - begin], range(begin, end), [at / 7 for at in range(begin, end)])
        writer.write(OWNER, [key], fresh, columns, ANY_TIME, 10)

    def times() -> list[int]:
        columns = Reader(path).select((ALL,), 99, FOREVER, lambda count: None).columns
        assert np.array_equal(columns.values, columns.times_ms / 7)
        return [int(at) for at in columns.times_ms]

    write(0, 100)
    pack(path, FOREVER)
    write(100, 200)
    write(200, 300)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chunk SET bits = substr(bits, 1, 20)")
        connection.execute("UPDATE batch SET data = substr(data, 1, 20) WHERE oldest_ms = 100")
    with pytest.raises(StoreUnavailable):
        times()
    assert pack(path, FOREVER) == 100
    assert times() == list(range(200, 300))
    assert "a chunk of series 1 is left as it is" in caplog.text
    assert "samples of write 2 are lost" in caplog.text
    write(300, 400)
    assert pack(path, FOREVER) == 100
    assert times() == list(range(200, 400))


def test_samples_are_packed_after_a_write_that_is_all_that_there_is_and_damaged(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    store(path, [named("a", [(1, 1.0)])], OWNER)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE batch SET data = substr(data, 1, 20)")
    assert pack(path, FOREVER) == 0
    assert not Reader(path).select((ALL,), -FOREVER, FOREVER, lambda count: None).labels
