"""Files that are written whole or not at all, most of them readable by their owner alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, mode 0600. A crash at any moment leaves the old file or the new one.

    Raises: OSError; the old file is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, data, mode=0o600)


def write_whole(path: Path, data: bytes, *, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace `path` by `data`. A crash at any moment leaves the old file or the new one.

    `owner`: user and group; None: those of this process. Raises: OSError; the old file is then untouched.
    """
    # One fixed name, so that a process killed while writing leaves at most one such file behind.
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        # Whatever stands there: others may hold it open, and to open a pipe could wait for ever.
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The whole file. Raises OSError, or ValueError if it is longer than `limit_bytes`."""
    with path.open("rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"{path} is longer than {limit_bytes} bytes")
    return data
