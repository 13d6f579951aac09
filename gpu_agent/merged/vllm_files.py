"""vLLM's metrics, read from the files that its processes write where PROMETHEUS_MULTIPROC_DIR is set.

Format: prometheus_client's multiprocess mode.
"""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

# A gauge of a process that may have ended: `gauge_liveall_123.db`. Its writer should remove it, and cannot when killed.
_LIVE_GAUGE = re.compile(r"gauge_live[a-z]+_(\d+)\.db")
_OF_PROCESS = re.compile(r"[a-z_]+_(\d+)\.db")
# What the library meets in a file that is not whole.
_DAMAGED = (struct.error, ValueError, RuntimeError, LookupError, TypeError, RecursionError)


class FilesUnavailable(Exception):
    """The folder cannot be read as a whole; the message says why and what would be right."""


@dataclass(frozen=True)
class VllmMetrics:
    """Families with at least one sample. `skipped`: files that could not be read."""

    families: list[Metric]
    skipped: int


def read_files(folder: Path, *, files_limit: int, limit_bytes: int, proc: Path = Path("/proc")) -> VllmMetrics:
    """All processes' numbers put together. Raises: FilesUnavailable."""
    files = list(_living(_files(folder, files_limit, limit_bytes), proc))
    try:
        return VllmMetrics(_families(files), 0)
    except OSError as error:
        # Wiped since it was listed: the next page has what the new processes write.
        raise FilesUnavailable(f"{folder} changed while it was read: {error}") from error
    except _DAMAGED:
        # One that was cut short by a full disk must not hide all the others.
        readable = [file for file in files if _is_whole(file)]
        return VllmMetrics(_families(readable), len(files) - len(readable))


def _files(folder: Path, files_limit: int, limit_bytes: int) -> list[Path]:
    try:
        named = sorted(file for file in folder.iterdir() if _OF_PROCESS.fullmatch(file.name))
        found = {file: file.lstat() for file in named}
    except OSError as error:
        raise FilesUnavailable(f"{folder} cannot be read: {error.strerror}") from error
    # A link or a pipe has another size than what is read from it, which may never end.
    files = [file for file in named if stat.S_ISREG(found[file].st_mode)]
    size_bytes = sum(found[file].st_size for file in files)
    if len(files) > files_limit:
        raise FilesUnavailable(f"{folder} has {len(files)} files; at most {files_limit}: wipe it between starts")
    if size_bytes > limit_bytes:
        raise FilesUnavailable(f"{folder} holds {size_bytes} bytes; at most {limit_bytes}: wipe it between starts")
    return files


def _living(files: list[Path], proc: Path) -> Iterable[Path]:
    """Without live gauges of processes that have ended, where vLLM's processes can be seen from here at all."""
    pids = {match[1] for file in files if (match := _OF_PROCESS.fullmatch(file.name))}
    alive = {pid for pid in pids if (proc / pid).exists()}
    if not alive:
        return files
    return [file for file in files if not (live := _LIVE_GAUGE.fullmatch(file.name)) or live[1] in alive]


def _is_whole(file: Path) -> bool:
    try:
        _families([file])
    except (OSError, *_DAMAGED):
        return False
    return True


def _families(files: Iterable[Path]) -> list[Metric]:
    """Raises: OSError, one of _DAMAGED."""
    merge: Callable[[list[str]], Iterable[Metric]] = MultiProcessCollector.merge
    return [family for family in merge([str(file) for file in files]) if family.samples]
