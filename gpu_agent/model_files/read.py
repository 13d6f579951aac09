"""Read files for their SHA-256, behind everything else that uses the disk. Belongs into a thread."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gpu_agent.model_files.ledger import Ledger, Stat

_CHUNK_BYTES = 4 << 20
_SAVE_SECONDS = 10.0
# linux/ioprio.h: the class that gets the disk only while nobody else wants it, and one thread for what it is set.
_IOPRIO_IDLE = 3 << 13
_IOPRIO_WHO_PROCESS = 1
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_LEAST_PRIORITY = 19


class Stopped(Exception):
    """It was asked to stop; what was read whole is kept."""


def read_files(
    folder: Path, paths: Iterable[str], ledger: Ledger, stopping: threading.Event, told: Callable[[int], None]
) -> None:
    """Read them into the ledger; `told` gets the bytes that were read so far. Raises: OSError, Stopped."""
    give_way()
    read_bytes, saved_seconds = 0, time.monotonic()
    try:
        for path in paths:
            digest = hashlib.sha256()
            with (folder / path).open("rb", buffering=0) as file:
                before = Stat.of(os.fstat(file.fileno()))
                while chunk := file.read(_CHUNK_BYTES):
                    if stopping.is_set():
                        raise Stopped
                    digest.update(chunk)
                    read_bytes += len(chunk)
                    told(read_bytes)
                # One that changed meanwhile is not known, and is read again by whoever asks next.
                if Stat.of(os.fstat(file.fileno())) == before:
                    ledger.put(str(folder / path), before, digest.hexdigest())
            if time.monotonic() - saved_seconds > _SAVE_SECONDS:
                ledger.save()
                saved_seconds = time.monotonic()
    finally:
        ledger.save()


def give_way() -> None:
    """Let this thread wait for all others, at the disk and at the processor, as far as the kernel lets it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LEAST_PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        # The C library has no name for it. A refusal leaves the priority as it was.
        ctypes.CDLL(None, use_errno=True).syscall(number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_IDLE)
