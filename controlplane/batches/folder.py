"""Contents of files in a folder: one file an id."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from controlplane.batches.store import Store, is_id


class Folder(Store):
    """The folder is made when something is put into it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, file_id: str, parts: Iterable[bytes]) -> int:
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
        return self._path(file_id).open("rb")

    def delete(self, file_id: str) -> None:
        self._path(file_id).unlink(missing_ok=True)

    def old_ids(self, older_than_seconds: float) -> Iterator[str]:
        return (path.name for path in self._old(older_than_seconds) if is_id(path.name))

    def drop_halves(self, older_than_seconds: float) -> int:
        halves = [path for path in self._old(older_than_seconds) if not is_id(path.name)]
        for path in halves:
            path.unlink(missing_ok=True)
        return len(halves)

    def _old(self, seconds: float) -> Iterator[Path]:
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.is_file() and time.time() - path.stat().st_mtime >= seconds:
                    yield path

    def _path(self, file_id: str) -> Path:
        if not is_id(file_id):
            raise FileNotFoundError(file_id)
        return self._folder / file_id
