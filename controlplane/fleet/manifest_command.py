"""`headworks model-manifest DIR`: the manifest of a model's files, to be uploaded."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from wire.manifest import BadManifest, FileEntry, Manifest, read_manifest, write_manifest

_CHUNK_BYTES = 4 << 20


def add_to(commands: Any) -> None:
    """Add the command to those of the parser."""
    text = "Print the manifest of a model's folder: each file with its size and SHA-256."
    parser = commands.add_parser("model-manifest", help=text, description=text)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        content = write_manifest(manifest_of(arguments.folder))
        # Read as whoever takes it will: names that a manifest cannot hold are told here.
        read_manifest(content)
    except (OSError, BadManifest) as error:
        print(f"headworks: no manifest of {arguments.folder}: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(content)
    return 0


def manifest_of(folder: Path) -> Manifest:
    """Of all files below the folder, links to files followed. Hidden ones are none of a model's. Raises: OSError."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    files = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                path = Path(parent, name)
                files[path.relative_to(folder).as_posix()] = _entry(path)
    return Manifest(files)


def _entry(path: Path) -> FileEntry:
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return FileEntry(size_bytes, digest.hexdigest())
