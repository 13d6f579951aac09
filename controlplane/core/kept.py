"""Secrets that are made once and kept in the data directory, each in a file that its owner alone may read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class CannotStart(RuntimeError):
    """A process cannot start as things are; the message says why, and what would be right."""


def read(file: Path, parse: Callable[[str], str]) -> str | None:
    """The secret in the file; None where there is no file. Raises CannotStart where it holds something else."""
    try:
        return parse(file.read_text().strip())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CannotStart(f"{file} holds no usable key: {error}; restore the file from your backup") from error


def keep(file: Path, secret: str, parse: Callable[[str], str]) -> str:
    """Write the secret where there is no file yet; what the file then holds. Raises OSError, CannotStart.

    Of two first starts at once one wins, and both go on with its secret. A kill at any moment leaves a whole file or
    none.
    """
    if (kept := read(file, parse)) is not None:
        return kept
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(secret)
            out.flush()
            os.fsync(descriptor)
        # link() fails where the name exists; a rename would replace the other's.
        with suppress(FileExistsError):
            os.link(draft, file)
        _sync_directory(file.parent)
    finally:
        os.unlink(draft)
    return parse(file.read_text().strip())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
