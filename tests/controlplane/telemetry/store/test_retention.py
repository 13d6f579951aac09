"""Space that comes back while others read and write."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from controlplane.telemetry.store.database import connect, transaction
from controlplane.telemetry.store.matching import Matcher, Operator
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.reader import Reader
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store
from tests.services import wait_for

OWNER = Owner("node", "n-1")
ALL = Matcher("__name__", Operator.MATCHES, ".+")
FOREVER = 2**60
HOURS, SAMPLES = 10, 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of some megabytes, in its file and not in its log."""
    path = tmp_path / "metrics.sqlite3"
    dice = np.random.default_rng(1)
    for hour in range(HOURS):
        begin = hour * SAMPLES
        store(path, [named("a", zip(range(begin, begin + SAMPLES), dice.random(SAMPLES).tolist(), strict=True))], OWNER)
        pack(path, FOREVER)
    prune(path, -FOREVER, FOREVER)
    return path


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def test_space_comes_back_while_others_read_and_write(path):
    """The log too: readers that follow one another closely do not keep it growing."""
    done = threading.Event()
    limit = path.stat().st_size // 2

    def read() -> int:
        reader, reads = Reader(path), 0
        while not done.is_set():
            columns = reader.select((ALL,), -FOREVER, FOREVER, lambda count: None).columns
            # From the oldest that is kept to the newest, without a hole.
            of_first = columns.times_ms[columns.series == 0]
            assert np.all(np.diff(of_first) == 1)
            reads += 1
        return reads

    def write() -> int:
        for at in count(HOURS * SAMPLES):
            if done.is_set():
                return at - HOURS * SAMPLES
            store(path, [named("a", [(at, float(at))])], OWNER)
        return 0

    def pruned_size() -> int:
        pack(path, FOREVER)
        prune(path, -FOREVER, limit)
        return size_of(path)

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work) for work in (read, read, read, write)]
        try:
            # What was written meanwhile, and SQLite's index of the log, come on top.
            wait_for(lambda: pruned_size() < limit * 1.25, 20, "the space to come back")
        finally:
            done.set()
        assert all(work.result(30) > 0 for work in working)


def test_a_long_query_holds_writers_up_for_a_moment_only(path):
    limit = path.stat().st_size // 2
    reading = connect(path, writing=False)
    with ThreadPoolExecutor(1) as threads:
        with transaction(reading, writing=False):
            reading.execute("SELECT COUNT(*) FROM chunk").fetchone()
            pruning = threads.submit(prune, path, -FOREVER, limit)
            waits = []
            for at in count(HOURS * SAMPLES):
                begun = time.monotonic()
                store(path, [named("a", [(at, 1.0)])], OWNER)
                waits.append(time.monotonic() - begun)
                if pruning.done():
                    break
        assert pruning.result().pages > 0
    assert max(waits) < 3
    assert path.stat().st_size > limit

    def shrunk() -> bool:
        store(path, [named("b", [(next(later), 1.0)])], OWNER)
        return bool(path.stat().st_size <= limit)

    later = count(FOREVER // 2)
    wait_for(shrunk, 20, "the file to shrink after the query")
    reading.close()
