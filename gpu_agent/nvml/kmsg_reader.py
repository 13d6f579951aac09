"""Follows /dev/kmsg: records since the last start first, then new ones as they come."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from gpu_agent.nvml.kmsg import RECORD_LIMIT_BYTES, Record, Sighting, parse_record, sighting
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE

log = logging.getLogger("headworks.agent.kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_POSITION_LIMIT_BYTES = 4096
# A file or pipe that is at its end is looked at again after this time; the kernel's log tells when there is more.
_END_PAUSE_SECONDS = 0.2
_REOPEN_SECONDS = 5.0
# A storm of XIDs must not be one of writes. Who dies before one sends the same ids again, which count once.
_SAVE_SECONDS = 1.0
# A full log is 16 MiB at most: others get their turn while it is read.
_RECORDS_A_TURN = 256


class _Position(Struct, frozen=True):
    """The last record that was reported, in the boot in which it was."""

    boot_id: str
    sequence: int


class KmsgReader:
    """Calls `on_sighting` with each sighting, its Unix time in ms and its lasting id (boot id and sequence).

    What was reported before is not reported again, restarts included; nor is what is older than `scan_seconds` at the
    start.
    """

    def __init__(
        self,
        *,
        path: Path,
        position_file: Path,
        scan_seconds: float,
        on_sighting: Callable[[Sighting, int, str], None],
        boot_id_file: Path = BOOT_ID,
    ) -> None:
        self._path, self._position_file, self._scan_seconds = path, position_file, scan_seconds
        self._on_sighting = on_sighting
        self._boot_id = _read_text(boot_id_file) or "unknown"
        self._position = self._load_position()
        self.problem = ""
        # Whether the log is open and read.
        self.follows = False
        self._task: asyncio.Task[None] | None = None
        self._saving: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._saving is not None:
            self._saving.cancel()
            self._save()

    async def _run(self) -> None:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                self._say(f"the kernel log cannot be read: {error}")
            else:
                self._say("")
                self.follows = True
                try:
                    await self._follow(descriptor)
                except OSError as error:
                    self._say(f"the kernel log cannot be read on: {error}")
                except Exception as error:
                    # One record that nobody foresaw must not keep all later ones unread.
                    log.exception("reading the kernel log failed, and is begun anew")
                    self._say(f"reading the kernel log failed: {type(error).__name__}")
                finally:
                    self.follows = False
                    os.close(descriptor)
            await asyncio.sleep(_REOPEN_SECONDS)

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem

    async def _follow(self, descriptor: int) -> None:
        # Wall clock of the kernel's zero: its records count from boot, on a clock of their own.
        boot_ms = int((time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)) * 1000)
        oldest_ms = int((time.time() - self._scan_seconds) * 1000)
        async for line, fresh in _lines(descriptor):
            record = parse_record(line)
            if record is None:
                continue
            # That clock drifts by minutes in months, and knows of no step of the wall clock: what comes while it is
            # waited for happened now.
            at_ms = _now_ms() if fresh else boot_ms + record.at_microseconds // 1000
            if at_ms >= oldest_ms and (seen := sighting(record.text)) is not None:
                self._report(record, seen, at_ms)

    def _report(self, record: Record, seen: Sighting, at_ms: int) -> None:
        if record.sequence <= self._position.sequence:
            return
        self._position = _Position(self._boot_id, record.sequence)
        self._on_sighting(seen, at_ms, f"kmsg-{self._boot_id}-{record.sequence}")
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(_SAVE_SECONDS, self._save)

    def _save(self) -> None:
        self._saving = None
        try:
            write_private(self._position_file, msgspec.json.encode(self._position))
        except OSError as error:
            log.warning("the place in the kernel log cannot be kept: %s", error)

    def _load_position(self) -> _Position:
        """Where the last run got to; the start of the log after a reboot, or where the file tells nothing."""
        try:
            kept = msgspec.json.decode(read_bounded(self._position_file, _POSITION_LIMIT_BYTES), type=_Position)
        except (OSError, ValueError, *UNREADABLE):
            return _Position(self._boot_id, -1)
        return kept if kept.boot_id == self._boot_id else _Position(self._boot_id, -1)


async def _lines(descriptor: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Lines of the log as they come, and whether each came after the log's end was seen. Raises: OSError."""
    rest, taken, fresh = b"", 0, False
    while True:
        try:
            data = os.read(descriptor, RECORD_LIMIT_BYTES)
        except BlockingIOError:
            fresh = True
            await _readable(descriptor)
            continue
        except OSError as error:
            # Records were overwritten before they were read: the next read goes on with the oldest that is left.
            if error.errno == errno.EPIPE:
                continue
            raise
        if not data:
            fresh = True
            await asyncio.sleep(_END_PAUSE_SECONDS)
            continue
        *lines, rest = (rest + data).split(b"\n")
        # What has no line end for this long is no record.
        rest = rest[:RECORD_LIMIT_BYTES]
        for line in lines:
            yield line, fresh
        taken += 1
        if taken % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    more = asyncio.Event()
    loop.add_reader(descriptor, more.set)
    try:
        await more.wait()
    finally:
        loop.remove_reader(descriptor)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
