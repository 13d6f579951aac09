"""Which files were read, and what their SHA-256 was: nothing is read again that has not changed since."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE

log = logging.getLogger("headworks.agent.model_files")
# Of some 250 bytes each.
_FILES_LIMIT = 20_000
_LIMIT_BYTES = 16 << 20
FOLDERS_LIMIT = 64


class Stat(Struct, frozen=True):
    """What a file that changes changes with it."""

    size_bytes: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stat:
        # Not the time of its content, which whoever writes it can set back.
        return cls(found.st_size, found.st_ctime_ns, found.st_ino)


class Read(Struct, frozen=True):
    stat: Stat
    sha256: str


class Asked(Struct, frozen=True, order=True):
    """A folder that somebody asked about, and the manifest that it was held against."""

    manifest: str
    folder: str


class _Content(Struct):
    """`asked`: oldest first."""

    asked: list[Asked] = []
    reads: dict[str, Read] = {}


class Ledger:
    """A file of the agent's state folder. One that cannot be read or written costs time alone: files are read again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._content = self._load()

    @property
    def asked(self) -> list[Asked]:
        return list(self._content.asked)

    def ask(self, asked: Asked) -> None:
        others = [each for each in self._content.asked if each != asked]
        self._content.asked = [*others, asked][-FOLDERS_LIMIT:]

    def sha256_of(self, path: str, found: Stat) -> str | None:
        """None for a file that was not read since it changed."""
        read = self._content.reads.get(path)
        return read.sha256 if read is not None and read.stat == found else None

    def put(self, path: str, found: Stat, sha256: str) -> None:
        # The file that was read last stands last, and is forgotten last.
        self._content.reads.pop(path, None)
        self._content.reads[path] = Read(found, sha256)

    def save(self) -> None:
        self._content.reads = dict(list(self._content.reads.items())[-_FILES_LIMIT:])
        try:
            write_private(self._file, msgspec.json.encode(self._content))
        except OSError as error:
            log.warning("which model files were read cannot be written down: %s", error.strerror)

    def _load(self) -> _Content:
        try:
            return msgspec.json.decode(read_bounded(self._file, _LIMIT_BYTES), type=_Content)
        except FileNotFoundError:
            return _Content()
        except (OSError, ValueError, *UNREADABLE) as error:
            log.warning("which model files were read is not known, so they are read again: %s", error)
            return _Content()
