"""Where the contents of files lie: in a folder, or in a bucket where a setting names one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol

from controlplane.batches import settings_rows as rows

_ID = re.compile(r"file-[0-9a-f]{32}")
PART_BYTES = 256 * 1024


def new_id() -> str:
    return f"file-{secrets.token_hex(16)}"


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


class Store(Protocol):
    """Contents by the id of their file. One is there whole, or not at all. All raise OSError."""

    def put(self, file_id: str, parts: Iterable[bytes]) -> int:
        """Keep a content in place of what was there; its size in bytes. What was there stays where it fails."""

    def open(self, file_id: str) -> BinaryIO:
        """To be read, from anywhere in it. Raises FileNotFoundError."""

    def delete(self, file_id: str) -> None:
        """Nothing where there is none."""

    def old_ids(self, older_than_seconds: float) -> Iterator[str]:
        """Contents that were written so long ago."""

    def drop_halves(self, older_than_seconds: float) -> int:
        """Forget what somebody began to write so long ago and never ended; answers how many."""


def store() -> Store:
    """As the settings say. Raises CannotStart where they want what is not here."""
    if rows.S3_BUCKET.read():
        from controlplane.batches.bucket import bucket_of_settings

        return bucket_of_settings()
    from controlplane.batches.folder import Folder

    return Folder(rows.folder())
