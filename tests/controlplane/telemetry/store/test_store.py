"""Packing, retention, and several processes on one file."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.telemetry.store import database, packing, reader
from controlplane.telemetry.store.database import StoreUnavailable, connect, transaction
from controlplane.telemetry.store.matching import BadMatcher, Matcher, Operator
from controlplane.telemetry.store.packing import CHUNK_SAMPLES, only_one, pack
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.tail import Tail
from controlplane.telemetry.store.writer import NotStored, Owner, SeriesRemoved, Writer
from tests.controlplane.telemetry.filling import ANY_TIME, named, store
from wire.write_body import key_of

OWNER = Owner("node", "n-1")
ALL = Matcher("__name__", Operator.MATCHES, ".+")
FOREVER = 2**60


def everything(path: Path, *matchers: Matcher) -> dict[str, list[tuple[int, float]]]:
    """Samples by metric name, or by the label `n` where there is one."""
    labels, columns = Reader(path).select(matchers or (ALL,), -FOREVER, FOREVER, lambda count: None)
    found: dict[str, list[tuple[int, float]]] = {}
    for row, time_ms, value in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(labels[row].get("n", labels[row]["__name__"]), []).append((time_ms, value))
    return found


def count_of(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite3"


def test_packing_changes_nothing_that_is_read(path):
    store(path, [named("a", [(at * 1000, at / 3) for at in range(1000)]), named("b", [(5, 1.0)])], OWNER)
    before = everything(path)
    assert pack(path, FOREVER) == 1001
    assert everything(path) == before
    assert (count_of(path, "batch"), count_of(path, "chunk")) == (0, 1000 // CHUNK_SAMPLES + 2)


def test_what_is_young_is_not_packed(path):
    store(path, [named("a", [(1000, 1.0), (2000, 1.0)])], OWNER)
    assert pack(path, 1000) == 0
    assert pack(path, 1001) == 2


def test_what_has_gathered_is_packed_piece_by_piece(path, monkeypatch):
    monkeypatch.setattr(packing, "_SAMPLES_AT_ONCE", 4)
    for at in range(5):
        store(path, [named("a", [(2 * at, 1.0), (2 * at + 1, 2.0)])], OWNER)
    before, waiting = everything(path), []

    def transaction(connection: sqlite3.Connection, *, writing: bool = True) -> Any:
        waiting.append(count_of(path, "batch"))
        return database.transaction(connection, writing=writing)

    monkeypatch.setattr(packing, "transaction", transaction)
    assert pack(path, FOREVER) == 10
    assert sorted(set(waiting), reverse=True) == [5, 3, 1, 0]
    assert everything(path) == before


def test_a_chunk_with_room_takes_what_comes_next(path):
    for at in range(3):
        store(path, [named("a", [(at, float(at))])], OWNER)
        pack(path, FOREVER)
    assert count_of(path, "chunk") == 1
    assert everything(path) == {"a": [(0, 0.0), (1, 1.0), (2, 2.0)]}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(12)), packed_after=st.sets(st.integers(0, 11)))
def test_samples_in_any_order_are_read_in_order(tmp_path_factory, order, packed_after):
    path = tmp_path_factory.mktemp("store") / "metrics.sqlite3"
    for place, at in enumerate(order):
        store(path, [named("a", [(at * 10, float(at))]), named("b", [(place, 1.0)])], OWNER)
        if place in packed_after:
            pack(path, FOREVER)
    assert everything(path) == {"a": [(at * 10, float(at)) for at in range(12)], "b": [(at, 1.0) for at in range(12)]}


def test_a_full_chunk_is_opened_for_a_late_sample(path):
    times = [at * 1000 for at in range(2 * CHUNK_SAMPLES) if at != 100]
    store(path, [named("a", [(at, 0.0) for at in times])], OWNER)
    pack(path, FOREVER)
    store(path, [named("a", [(100_000, 7.0)])], OWNER, window=replace(ANY_TIME, late_ms=10**9))
    pack(path, FOREVER)
    found = everything(path)["a"]
    assert [at for at, _ in found] == sorted([*times, 100_000])
    assert (100_000, 7.0) in found


def test_only_one_rearranges_the_store_at_a_time(path):
    store(path, [named("a", [(1, 1.0)])], OWNER)
    with only_one(path) as alone:
        assert alone
        assert pack(path, FOREVER) == 0
        assert prune(path, FOREVER, 0).chunks == 0
    assert pack(path, FOREVER) == 1


@pytest.mark.parametrize("rearrange", [lambda path: pack(path, FOREVER), lambda path: prune(path, FOREVER, 0)])
def test_a_lock_that_cannot_be_opened_is_named(path, rearrange):
    store(path, [named("a", [(1, 1.0)])], OWNER)
    path.with_suffix(".lock").mkdir()
    with pytest.raises(StoreUnavailable, match="lock"):
        rearrange(path)


def test_a_lock_that_the_file_system_does_not_give_is_named(path, monkeypatch):
    store(path, [named("a", [(1, 1.0)])], OWNER)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreUnavailable, match="lock"):
        pack(path, FOREVER)


def test_retention_by_age_removes_chunks_series_and_labels(path):
    store(path, [named("old", [(1000, 1.0)], n="1"), named("young", [(9000, 1.0)], n="2")], OWNER)
    pack(path, FOREVER)
    assert prune(path, 5000, 2**40)[:2] == (1, 1)
    assert everything(path) == {"2": [(9000, 1.0)]}
    assert count_of(path, "series") == 1
    assert Reader(path).label_values("n") == ["2"]


def test_a_series_with_unpacked_samples_is_not_removed(path):
    store(path, [named("a", [(1000, 1.0)])], OWNER)
    pack(path, FOREVER)
    store(path, [named("a", [(9000, 2.0)])], OWNER)
    assert prune(path, 5000, 2**40)[:2] == (1, 0)
    assert everything(path) == {"a": [(9000, 2.0)]}


def test_a_removed_series_is_made_anew(path):
    """The writer's memory of ids is not older than the removal."""
    store(path, [named("a", [(1000, 1.0)])], OWNER)
    pack(path, FOREVER)
    assert prune(path, 5000, 2**40).series == 1

    with pytest.raises(SeriesRemoved):
        store(path, [named("a", [(9000, 2.0)])], OWNER)
    store(path, [named("a", [(9000, 2.0)])], OWNER)
    assert everything(path) == {"a": [(9000, 2.0)]}


def test_retention_by_size_removes_the_oldest_and_shrinks_the_file(path):
    dice = np.random.default_rng(1)
    for start in range(10):
        times = range(start * 10**6, start * 10**6 + 20_000)
        store(path, [named("a", [(at, dice.random()) for at in times])], OWNER)
        pack(path, FOREVER)
    before = path.stat().st_size
    limit = before // 2
    removed = prune(path, -FOREVER, limit)
    assert removed.pages > 0
    after = path.stat().st_size
    assert after <= limit
    # Not much more than it had to.
    assert after > limit * 0.8
    kept = everything(path)["a"]
    assert kept[-1][0] == 9 * 10**6 + 19_999
    assert kept[0][0] > 10**6


def test_readers_see_whole_writes_while_others_write_and_pack(path):
    """Every write has the same value in all its series; no reader ever sees two."""
    rounds, series = 60, 20
    done = threading.Event()
    failures: list[object] = []

    def read() -> int:
        reader, seen = Reader(path), 0
        while not done.is_set():
            columns = reader.select((ALL,), -FOREVER, FOREVER, lambda count: None).columns
            counts = np.bincount(columns.series) if len(columns.series) else np.zeros(1)
            if len(set(counts.tolist())) != 1:
                failures.append(counts)
            seen = max(seen, int(counts[0]))
        return seen

    def rearrange() -> None:
        while not done.is_set():
            pack(path, FOREVER)

    store(path, [named("a", [(0, 0.0)], n=str(number)) for number in range(series)], OWNER)
    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        packing = threads.submit(rearrange)
        for at in range(1, rounds):
            store(path, [named("a", [(at, float(at))], n=str(number)) for number in range(series)], OWNER)
        done.set()
        seen = [reader.result(20) for reader in readers]
        packing.result(20)
    assert failures == []
    assert max(seen) > 1
    assert {len(samples) for samples in everything(path).values()} == {rounds}


def test_a_reader_that_began_before_sees_what_it_began_with(path):
    """Another reader of the process has moved on meanwhile, past a packing and a new write."""
    tail = Tail()
    early, late = connect(path, writing=False), connect(path, writing=False)
    store(path, [named("a", [(1, 1.0)])], OWNER)
    with transaction(early, writing=False):
        before = tail.read(early).times_ms.tolist()
        pack(path, FOREVER)
        store(path, [named("a", [(2, 2.0)])], OWNER)
        with transaction(late, writing=False):
            assert tail.read(late).times_ms.tolist() == [2]
        assert tail.read(early).times_ms.tolist() == before == [1]
    with transaction(early, writing=False):
        assert tail.read(early).times_ms.tolist() == [2]
    early.close()
    late.close()


def test_a_process_that_comes_and_goes_leaves_the_log_to_those_that_stay(path):
    """It is not the last to close the file, however many connections of one process stay."""
    store(path, [named("a", [(1, 1.0)])], OWNER)
    first = connect(path, writing=True)
    second = connect(path, writing=False)
    count = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT COUNT(*) FROM batch').fetchone()[0])"
    )
    seen = []
    for _ in range(2):
        with transaction(first):
            first.execute("INSERT INTO batch (oldest_ms, newest_ms, samples, data) VALUES (0, 0, 0, x'')")
        said = subprocess.run([sys.executable, "-c", count, path], capture_output=True, check=True, timeout=30)
        seen.append(int(said.stdout))
    assert seen == [2, 3]
    assert path.with_name(f"{path.name}-wal").exists()
    first.close()
    second.close()


def test_two_processes_write_one_file(path):
    """Each learns from the file what the other wrote: a second value at one time is refused by both."""
    first, second = Writer(path), Writer(path)

    labels = {"__name__": "a", "node": "n-1"}
    key = key_of(labels)

    def write(writer: Writer, at: int, value: float) -> None:
        writer.write(OWNER, [key], {key: labels}, ([1], [at], [value]), ANY_TIME, 10)

    write(first, 1, 1.0)
    write(second, 2, 2.0)
    for writer in (first, second):
        with pytest.raises(NotStored, match="two values"):
            write(writer, 2, 3.0)
    pack(path, FOREVER)
    write(first, 3, 3.0)
    pack(path, FOREVER)
    with pytest.raises(NotStored, match="two values"):
        write(second, 3, 4.0)
    assert everything(path) == {"a": [(1, 1.0), (2, 2.0), (3, 3.0)]}


SERIES = [{"pool": "short", "n": "1"}, {"pool": "long", "n": "2"}, {"n": "3"}, {"pool": "a\nb", "n": "4"}]


@pytest.mark.parametrize(
    ("operator", "value", "chosen"),
    [
        (Operator.EQUAL, "short", "1"),
        (Operator.EQUAL, "", "3"),
        (Operator.NOT_EQUAL, "short", "234"),
        (Operator.NOT_EQUAL, "", "124"),
        (Operator.MATCHES, "sho.*|long", "12"),
        (Operator.MATCHES, "hor", ""),
        (Operator.MATCHES, "", "3"),
        (Operator.MATCHES, ".*", "1234"),
        (Operator.MATCHES, ".+", "124"),
        (Operator.MATCHES, "a.b", "4"),
        (Operator.MATCHES_NOT, "s.*", "234"),
        (Operator.MATCHES_NOT, ".+", "3"),
        (Operator.MATCHES, "(?i)SHORT", "1"),
    ],
)
def test_matchers_choose_series(path, operator, value, chosen):
    store(path, [named("a", [(1, 1.0)], **labels) for labels in SERIES], OWNER)
    assert set(everything(path, ALL, Matcher("pool", operator, value))) == set(chosen)


def test_a_regular_expression_that_would_blow_up_is_quick(path):
    store(path, [named("a", [(1, 1.0)], pool="a" * 1000)], OWNER)
    begun = time.monotonic()
    assert everything(path, ALL, Matcher("pool", Operator.MATCHES, "(a+)+(a|aa)+$b")) == {}
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("pattern", ["(", "a" * 16_385, "(((a{1000}){1000}){1000})"])
def test_a_regular_expression_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(BadMatcher):
        Matcher("pool", Operator.MATCHES, pattern)


def test_reading_ends_when_the_caller_has_had_enough(path):
    store(path, [named("a", [(at, 1.0) for at in range(1000)])], OWNER)
    pack(path, FOREVER)

    class Enough(Exception):
        pass

    def no_more(samples: int) -> None:
        raise Enough

    reader = Reader(path)
    with pytest.raises(Enough):
        reader.select((ALL,), -FOREVER, FOREVER, no_more)
    assert len(reader.select((ALL,), -FOREVER, FOREVER, lambda count: None).labels) == 1


def test_a_reader_does_not_remember_series_for_ever(path, monkeypatch):
    """Each look finds its own series, and what was looked at before takes no more than a bound."""
    monkeypatch.setattr(reader, "_LABELS_REMEMBERED_MAX", 10)
    store(path, [named("a", [(1, 1.0)], n=str(number)) for number in range(50)], OWNER)
    own = Reader(path)
    for number in range(50):
        (labels,) = own.select((ALL, Matcher("n", Operator.EQUAL, str(number))), 0, 1, lambda count: None).labels
        assert labels["n"] == str(number)
        assert len(own._labels) <= 11
