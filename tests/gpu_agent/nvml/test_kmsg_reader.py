from __future__ import annotations

import asyncio
import errno
import os
import stat
import time

import pytest

from gpu_agent.nvml.kmsg_reader import KmsgReader

FALLEN = "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus."


def record(sequence, text, *, age_seconds=0.0):
    at = int((time.clock_gettime(time.CLOCK_MONOTONIC) - age_seconds) * 1e6)
    return f"2,{sequence},{at},-;{text}\n SUBSYSTEM=pci\n"


def xid(number):
    return f"NVRM: Xid (PCI:0000:05:00): {number}, pid=1, name=python"


class Log:
    """A kernel log in a file, and what readers of it told."""

    def __init__(self, folder):
        self.path = folder / "kmsg"
        self.path.touch()
        self.boot_id_file = folder / "boot_id"
        self.boot_id_file.write_text("boot-1\n")
        self.position_file = folder / "agent" / "kmsg-position.json"
        self.told: list[tuple[int | None, str]] = []
        self.times_ms: list[int] = []

    def write(self, *records):
        with self.path.open("a") as file:
            file.write("".join(records))

    def reader(self, scan_seconds=3600.0):
        return KmsgReader(
            path=self.path,
            position_file=self.position_file,
            scan_seconds=scan_seconds,
            on_sighting=self._tell,
            boot_id_file=self.boot_id_file,
        )

    def _tell(self, seen, at_ms, event_id):
        self.told.append((seen.number, event_id))
        self.times_ms.append(at_ms)

    async def until_told(self, count):
        async with asyncio.timeout(10):
            while len(self.told) < count:  # noqa: ASYNC110 - what is waited for is a callback's work
                await asyncio.sleep(0.01)


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


async def test_records_from_before_the_start_and_after_it_are_told_once_each(log):
    log.write(record(1, "usb 1-1: new device"), record(2, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    log.write(record(3, xid(48)), record(4, FALLEN))
    await log.until_told(3)
    await reader.stop()
    assert log.told == [(79, "kmsg-boot-1-2"), (48, "kmsg-boot-1-3"), (None, "kmsg-boot-1-4")]
    assert log.times_ms[1] == pytest.approx(time.time() * 1000, abs=30_000)


async def test_a_restart_tells_only_what_came_meanwhile(log):
    log.write(record(7, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()
    log.write(record(8, xid(48)))
    reader = log.reader()
    reader.start()
    await log.until_told(2)
    await reader.stop()
    assert [number for number, _ in log.told] == [79, 48]
    assert stat.S_IMODE(log.position_file.stat().st_mode) == 0o600


async def test_sequences_begin_anew_with_the_next_boot(log):
    log.write(record(500, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()
    log.boot_id_file.write_text("boot-2\n")
    log.path.write_text(record(3, xid(48)))
    reader = log.reader()
    reader.start()
    await log.until_told(2)
    await reader.stop()
    assert log.told[1] == (48, "kmsg-boot-2-3")


async def test_what_is_older_than_the_scan_reaches_is_not_told(log):
    log.write(record(1, xid(79), age_seconds=120), record(2, xid(48), age_seconds=5))
    reader = log.reader(scan_seconds=60)
    reader.start()
    await log.until_told(1)
    await reader.stop()
    assert [number for number, _ in log.told] == [48]


async def test_what_comes_while_the_log_is_followed_happened_now_though_the_kernels_clock_has_drifted(log):
    log.write(record(1, xid(79)))
    reader = log.reader(scan_seconds=60)
    reader.start()
    await log.until_told(1)
    log.write(record(2, xid(48), age_seconds=600))
    await log.until_told(2)
    await reader.stop()
    assert log.times_ms[1] == pytest.approx(time.time() * 1000, abs=30_000)


async def test_it_says_whether_it_follows_the_log(log):
    reader = log.reader()
    assert not reader.follows
    log.write(record(1, xid(79)))
    reader.start()
    await log.until_told(1)
    assert reader.follows
    await reader.stop()
    assert not reader.follows


async def test_a_damaged_position_file_only_means_a_scan_anew(log):
    log.position_file.parent.mkdir()
    log.position_file.write_bytes(b"\xff{")
    log.write(record(1, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()


async def test_an_unwritable_position_file_stops_nothing(log):
    log.position_file.parent.write_text("a file where the folder should be")
    log.write(record(1, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()
    assert reader.problem == ""


async def test_records_that_were_overwritten_are_passed_over(log, monkeypatch):
    real_read, failures = os.read, [OSError(errno.EPIPE, "overwritten")]

    def read(descriptor, size):
        if failures and os.readlink(f"/proc/self/fd/{descriptor}") == str(log.path):
            raise failures.pop()
        return real_read(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    log.write(record(9, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()
    assert failures == []
    assert reader.problem == ""


async def test_a_pipe_that_others_write_to_is_followed(log):
    log.path.unlink()
    os.mkfifo(log.path)
    reader = log.reader()
    reader.start()
    writer = await asyncio.to_thread(os.open, log.path, os.O_WRONLY)
    try:
        # In pieces, as a pipe may give them.
        line = record(1, xid(79)).encode()
        os.write(writer, line[:20])
        await asyncio.sleep(0)
        os.write(writer, line[20:])
        await log.until_told(1)
    finally:
        os.close(writer)
        await reader.stop()


async def test_endless_text_without_a_line_end_is_bounded_and_the_next_record_is_read(log):
    log.write("x" * 100_000 + "\n", record(1, xid(79)))
    reader = log.reader()
    reader.start()
    await log.until_told(1)
    await reader.stop()


async def test_a_log_that_cannot_be_read_is_said(log):
    log.path.unlink()
    reader = log.reader()
    reader.start()
    async with asyncio.timeout(10):
        while not reader.problem:  # noqa: ASYNC110 - a task's state has no event
            await asyncio.sleep(0.01)
    await reader.stop()
    assert "No such file" in reader.problem


async def test_a_failure_that_nobody_foresaw_keeps_no_later_record_unread(log, monkeypatch):
    monkeypatch.setattr("gpu_agent.nvml.kmsg_reader._REOPEN_SECONDS", 0.01)
    tell, failures = log._tell, iter([RuntimeError("nobody thought of this")])

    def failing_once(*seen):
        if failure := next(failures, None):
            raise failure
        tell(*seen)

    monkeypatch.setattr(log, "_tell", failing_once)
    log.write(record(1, xid(79)), record(2, xid(48)))
    reader = log.reader()
    reader.start()
    try:
        await log.until_told(1)
        assert log.told[0][0] == 48
        assert (reader.problem, reader.follows) == ("", True)
    finally:
        await reader.stop()
