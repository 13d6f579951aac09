"""Where the contents of files lie: one file an id in a folder. A content is there whole, or not at all."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from controlplane.batches import settings_rows as rows

_ID = re.compile(r"file-[0-9a-f]{32}")
PART_BYTES = 256 * 1024


def new_id() -> str:
    return f"file-{secrets.token_hex(16)}"


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


class Store:
    """The contents in one folder, which is made when something is put into it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, file_id: str, parts: Iterable[bytes]) -> int:
        """Keep a content in place of what was there; its size in bytes. Raises OSError, and what was there stays."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = 0
        handle, name = tempfile.mkstemp(prefix=f"{file_id}.", suffix=".part", dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for part in parts:
                    file.write(part)
                    size += len(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path(file_id))
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
        return size

    def open(self, file_id: str) -> BinaryIO:
        """Raises FileNotFoundError."""
        return self._path(file_id).open("rb")

    def parts(self, file_id: str) -> Iterator[bytes]:
        """Raises FileNotFoundError at the first of them."""
        with self.open(file_id) as file:
            while part := file.read(PART_BYTES):
                yield part

    def delete(self, file_id: str) -> None:
        self._path(file_id).unlink(missing_ok=True)

    def old_names(self, older_than_seconds: float) -> Iterator[tuple[str, Path]]:
        """(id, or empty for half of one, path) of what was last written so long ago."""
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= older_than_seconds:
                    yield path.name if is_id(path.name) else "", path

    def _path(self, file_id: str) -> Path:
        if not is_id(file_id):
            raise FileNotFoundError(file_id)
        return self._folder / file_id


def store() -> Store:
    return Store(rows.folder())
