"""What the kernel says of single processes. Source: proc(5)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_COMMAND_LINE_BYTES = 64 << 10
_OPEN_FILES_LIMIT = "Max open files"


class Stat(NamedTuple):
    """`name`: the first 15 bytes of a program's file name or of the title that it gave itself.

    `started_ticks`: since the boot; with the process id it tells a process from a later one under the same id.
    """

    name: str
    parent: int
    cpu_seconds: float
    threads: int
    started_ticks: int
    resident_bytes: int


class Files(NamedTuple):
    """How many files a process has open, and how many it may have open."""

    open: int
    limit: int


def pids(proc: Path) -> list[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def stat_of(proc: Path, pid: int) -> Stat | None:
    """None where the process is gone or hidden."""
    text = _read(proc / str(pid) / "stat")
    # The name stands in parentheses and may hold anything.
    head, closing, tail = text.rpartition(b")")
    if not closing:
        return None
    fields = tail.split()
    return Stat(
        name=head.partition(b"(")[2].decode(errors="replace"),
        parent=int(fields[1]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND,
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def boot_time_ms(proc: Path) -> int | None:
    """Unix time of the boot, to the second."""
    for line in _read(proc / "stat").splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1]) * 1000
    return None


def ticks_ms(ticks: int) -> int:
    return ticks * 1000 // _TICKS_PER_SECOND


def command_line(proc: Path, pid: int) -> list[str]:
    """The words that a process was started with, or set as its title; cut off after 64 KiB. Empty: it has none now."""
    text = _read(proc / str(pid) / "cmdline", _COMMAND_LINE_BYTES)
    return [word.decode(errors="replace") for word in text.rstrip(b"\0").split(b"\0")] if text else []


def open_sockets(proc: Path, pid: int) -> list[str]:
    """The inodes of a process's sockets. Raises: PermissionError where only a privileged reader may see them."""
    folder = proc / str(pid) / "fd"
    found = []
    try:
        for number in os.listdir(folder):
            try:
                target = os.readlink(folder / number)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                found.append(target[len("socket:[") : -1])
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found


def open_files(proc: Path, pid: int) -> Files | None:
    """None where the process is gone, or its files are for a privileged reader."""
    try:
        # Linux 6.2 gives their number as the folder's size; before that it is 0.
        folder = proc / str(pid) / "fd"
        count = os.stat(folder).st_size or len(os.listdir(folder))
    except OSError:
        return None
    for line in _read(proc / str(pid) / "limits").decode().splitlines():
        if line.startswith(_OPEN_FILES_LIMIT):
            soft = line[len(_OPEN_FILES_LIMIT) :].split()[0]
            return Files(count, int(soft)) if soft.isdigit() else None
    return None


def _read(path: Path, limit_bytes: int = -1) -> bytes:
    """Empty where there is nothing to be read (any more)."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(limit_bytes) or b""
    except OSError:
        return b""
