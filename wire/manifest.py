"""The manifest of a model: which files it has, how large each is, and its SHA-256."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from wire.messages import UNREADABLE
from wire.problems import type_problems
from wire.snapshot import Count, Sha256

# As many as any model has, with room; a manifest of them is about 2 MB.
MAX_FILES = 10_000
RelativePath = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f/][^\x00-\x1f\x7f]*$(?!\n)")]
_PARENTS = ("", ".", "..")


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    size_bytes: Count
    sha256: Sha256


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """`files`: by their path below the model's folder, parts separated by `/`."""

    files: Annotated[dict[RelativePath, FileEntry], Meta(min_length=1, max_length=MAX_FILES)]

    @property
    def total_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files.values())


class BadManifest(ValueError):
    """The message says what is wrong, and where."""


def read_manifest(content: bytes) -> Manifest:
    """Raises: BadManifest."""
    try:
        document = msgspec.json.decode(content)
    except UNREADABLE as error:
        raise BadManifest(f"it is no JSON: {error}") from error
    if problems := type_problems(document, Manifest):
        raise BadManifest("; ".join(f"{problem.path}: {problem.message}" for problem in problems[:5]))
    manifest = msgspec.convert(document, Manifest)
    for path in manifest.files:
        if any(part in _PARENTS for part in path.split("/")):
            raise BadManifest(f"{path!r} is no plain path below the model's folder")
    ancestors = {str(parent) for path in manifest.files for parent in PurePosixPath(path).parents}
    if both := ancestors & manifest.files.keys():
        raise BadManifest(f"{min(both)!r} is a file and a folder")
    return manifest


def write_manifest(manifest: Manifest) -> bytes:
    """The same files give the same bytes, and so the same SHA-256."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"
