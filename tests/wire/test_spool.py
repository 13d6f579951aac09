from __future__ import annotations

import errno
import logging
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.disks import mounted
from wire.spool import Spool

LIMIT_BYTES = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "metrics.spool"


@contextmanager
def files_of_at_most(limit_bytes: int) -> Iterator[None]:
    """As on a full disk, nothing of this process may be written beyond this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    with mounted(tmp_path / "disk", "size=256k") as place:
        yield place


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=256k,ro") as place:
        yield place


def bodies(spool: Spool) -> list[bytes]:
    return [body for _, body in spool.oldest(100_000, 1 << 30)]


def test_records_leave_in_the_order_in_which_they_came(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"one", b"two"])
    spool.put([b"three"])
    assert spool.waiting == 3
    (first, one), (second, two) = spool.oldest(2, 1000)
    assert (one, two) == (b"one", b"two")
    spool.remove(first)
    assert bodies(spool) == [b"two", b"three"]
    spool.remove(second)
    assert bodies(spool) == [b"three"]
    assert spool.waiting == 1


def test_a_batch_is_bounded_in_bytes_but_never_empty_while_something_waits(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"x" * 100] * 5)
    assert len(spool.oldest(10, 250)) == 2
    assert len(spool.oldest(10, 1)) == 1
    spool.remove(spool.oldest(5, 1000)[-1][0])
    assert spool.oldest(10, 1000) == []


def test_a_number_is_never_given_twice(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"sent"])
    [(sent, _)] = spool.oldest(1, 100)
    spool.remove(sent)
    spool.close()
    again = Spool(file, limit_bytes=LIMIT_BYTES)
    again.put([b"news"])
    again.remove(sent)
    assert bodies(again) == [b"news"]


def test_what_waits_is_there_after_a_restart(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"one", b"two"])
    spool.close()
    again = Spool(file, limit_bytes=LIMIT_BYTES)
    assert again.waiting == 2
    assert bodies(again) == [b"one", b"two"]


def test_nothing_that_put_returned_for_is_lost_by_kill_9(file: Path):
    argv = [sys.executable, "-m", "tests.wire.spool_writer", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [next(writer.stdout) for _ in range(200)]
        writer.kill()
        said += writer.stdout.readlines()
    last_said = int([line for line in said if line.endswith("\n")][-1])
    kept = [int(body.split()[0]) for body in bodies(Spool(file, limit_bytes=64 << 20))]
    assert kept == list(range(len(kept)))
    assert len(kept) >= last_said + 1


def test_over_the_limit_the_oldest_go_and_are_counted(file: Path, caplog: pytest.LogCaptureFixture):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    sent = [b"%04d" % number + b"x" * 20_000 for number in range(200)]
    with caplog.at_level(logging.WARNING):
        for record in sent:
            spool.put([record])
    kept = bodies(spool)
    assert kept == sent[-len(kept) :]
    assert 0.8 * LIMIT_BYTES < sum(map(len, kept)) < LIMIT_BYTES
    assert (spool.waiting, spool.dropped) == (len(kept), len(sent) - len(kept))
    assert file.stat().st_size <= LIMIT_BYTES
    assert len([r for r in caplog.records if "the oldest records go" in r.message]) == 1


def test_a_record_that_is_larger_than_the_limit_takes_no_other_with_it(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"before", b"x" * LIMIT_BYTES, b"after"])
    assert bodies(spool) == [b"before", b"after"]
    assert (spool.waiting, spool.dropped) == (2, 1)


def test_a_lower_limit_holds_from_the_next_put_on(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"x" * 10_000] * 50)
    spool.close()
    smaller = Spool(file, limit_bytes=100_000)
    smaller.put([b"new"])
    kept = bodies(smaller)
    assert kept[-1] == b"new"
    assert sum(map(len, kept)) < 100_000
    assert smaller.dropped == 51 - len(kept)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=60))
def test_the_newest_records_are_kept_whatever_their_sizes(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]):
    file = tmp_path_factory.mktemp("spool") / "spool"
    spool = Spool(file, limit_bytes=200_000)
    sent = [b"%d:" % number + b"x" * size for number, size in enumerate(sizes)]
    for record in sent:
        spool.put([record])
    kept = bodies(spool)
    assert kept == sent[-len(kept) :]
    assert spool.waiting + spool.dropped == len(sent)
    assert spool.waiting == len(kept)
    spool.close()
    assert file.stat().st_size <= 200_000


def test_its_files_are_readable_by_their_owner_alone(file: Path):
    file.parent.mkdir()
    file.touch(mode=0o644)
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"secret"])
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}


def test_a_link_in_its_place_is_not_followed(file: Path, tmp_path: Path):
    file.parent.mkdir()
    other = tmp_path / "other"
    file.symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        Spool(file, limit_bytes=LIMIT_BYTES).put([b"x"])
    assert not other.exists()


@pytest.mark.parametrize("with_its_folder", [False, True])
def test_what_comes_after_the_file_was_removed_survives_the_process(
    file: Path, with_its_folder: bool, caplog: pytest.LogCaptureFixture
):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"first", b"second"])
    assert spool.oldest(1, 100) == [(1, b"first")]
    for each in file.parent.iterdir():
        each.unlink()
    if with_its_folder:
        file.parent.rmdir()
    spool.put([b"third"])
    assert "was removed" in caplog.text
    assert spool.waiting == 1
    # Of the one that was handed out before.
    spool.remove(1)
    after_a_crash = Spool(file, limit_bytes=LIMIT_BYTES)
    assert [record for _, record in after_a_crash.oldest(10, 100)] == [b"third"]
    after_a_crash.close()
    spool.close()


@pytest.mark.parametrize("damage", ["no database", "torn", "another database"])
def test_a_damaged_file_is_set_aside_and_a_new_one_made(file: Path, damage: str, caplog: pytest.LogCaptureFixture):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"x" * 1000] * 100)
    spool.close()
    if damage == "no database":
        file.write_bytes(b"\x00garbage" * 1000)
    elif damage == "torn":
        os.truncate(file, file.stat().st_size // 2)
    else:
        file.unlink()
        with sqlite3.connect(file) as other:
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("CREATE TABLE records (something INTEGER)")
        other.close()
    found = file.read_bytes()
    again = Spool(file, limit_bytes=LIMIT_BYTES)
    assert again.waiting == 0
    again.put([b"new"])
    assert bodies(again) == [b"new"]
    assert file.with_name("metrics.spool.damaged").read_bytes() == found
    assert "is damaged" in caplog.text


def test_damage_while_it_is_open_costs_what_waited_and_no_more(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"x" * 1000] * 100)
    with sqlite3.connect(file) as other:
        other.execute("DROP TABLE records")
    other.close()
    spool.put([b"new"])
    assert bodies(spool) == [b"new"]
    assert spool.waiting == 1


@pytest.mark.parametrize("found_by", ["put", "remove"])
def test_what_came_after_the_damage_is_not_taken_for_what_was_sent_before(file: Path, found_by: str):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"x"] * 100)
    sent = spool.oldest(50, LIMIT_BYTES)[-1][0]
    with sqlite3.connect(file) as other:
        other.execute("DROP TABLE records")
    other.close()
    if found_by == "put":
        spool.put([b"new"])
    spool.remove(sent)
    spool.put([b"newer"])
    assert bodies(spool) == ([b"new"] if found_by == "put" else []) + [b"newer"]


def test_a_full_disk_is_named_and_what_waits_still_leaves(small_disk: Path):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 50_000)
    spool = Spool(small_disk / "spool", limit_bytes=LIMIT_BYTES)

    def fill() -> None:
        while True:
            spool.put([b"%04d" % spool.waiting + b"x" * 5000])

    with pytest.raises(OSError, match="full") as full:
        fill()
    assert full.value.errno == errno.ENOSPC
    put = spool.waiting
    assert put > 5
    assert [int(body[:4]) for body in bodies(spool)] == list(range(put))
    assert spool.dropped == 0

    spool.remove(spool.oldest(5, LIMIT_BYTES)[-1][0])
    assert spool.waiting == put - 5
    assert [int(body[:4]) for body in bodies(spool)] == list(range(5, put))

    ballast.unlink()
    spool.put([b"news"])
    assert spool.waiting == put - 4
    spool.close()
    assert [body[:4] for body in bodies(Spool(small_disk / "spool", limit_bytes=LIMIT_BYTES))] == [
        *(b"%04d" % number for number in range(5, put)),
        b"news",
    ]


def test_it_opens_by_itself_once_a_full_disk_has_room(file: Path):
    with files_of_at_most(0):
        spool = Spool(file, limit_bytes=LIMIT_BYTES)
        with pytest.raises(OSError, match=str(file)):
            spool.put([b"lost"])
    spool.put([b"kept"])
    assert bodies(spool) == [b"kept"]


def test_a_lock_that_another_process_holds_is_named_soon_and_costs_what_waits_nothing(file: Path):
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    spool.put([b"before"])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with pytest.raises(OSError, match="busy") as busy:
        spool.put([b"meanwhile"])
    assert busy.value.errno == errno.EBUSY
    assert time.monotonic() - begun < 4
    assert bodies(spool) == [b"before"]
    other.execute("ROLLBACK")
    other.close()
    spool.put([b"after"])
    assert bodies(spool) == [b"before", b"after"]


@pytest.mark.parametrize("hindrance", ["a file for a folder", "a folder for the file", "a disk to read from alone"])
def test_a_place_that_cannot_be_written_is_named_and_tried_again(
    tmp_path: Path, hindrance: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
):
    file = tmp_path / "state" / "metrics.spool"
    clear: Callable[[], object]
    if hindrance == "a file for a folder":
        file.parent.touch()
        clear = file.parent.unlink
    elif hindrance == "a folder for the file":
        file.mkdir(parents=True)
        clear = file.rmdir
    else:
        disk = request.getfixturevalue("read_only_disk")
        file = disk / "metrics.spool"
        clear = partial(subprocess.run, ["mount", "-o", "remount,rw", str(disk)], check=True)
    spool = Spool(file, limit_bytes=LIMIT_BYTES)
    assert str(file.parent) in caplog.text
    with pytest.raises(OSError, match=str(file.parent)):
        spool.put([b"lost"])
    with pytest.raises(OSError, match=str(file.parent)):
        spool.oldest(1, LIMIT_BYTES)
    clear()
    spool.put([b"kept"])
    assert bodies(spool) == [b"kept"]
    spool.close()
