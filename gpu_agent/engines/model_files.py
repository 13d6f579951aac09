"""How large an engine's model files are and where they lie. Belongs into a thread: a network disk may not answer."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# More than any model has; a folder of other things is not walked through for it.
_FILES_LIMIT = 10_000
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
# Local by name: what the kernel calls its own disks, memory and layers. Of others, fuse included, a server answers.
_LOCAL = re.compile("btrfs|erofs|exfat|ext[234]|f2fs|fuseblk|overlay|ramfs|squashfs|tmpfs|vfat|xfs|zfs")


@dataclass(frozen=True)
class ModelFiles:
    """`filesystem`: its type as the kernel calls it, and whether that is of this machine."""

    size_bytes: int
    filesystem: str
    place: Literal["local", "network"]


class TooManyFiles(Exception):
    """The folder is not one model's."""


def model_files(path: Path, mounts: Path = _MOUNTS) -> ModelFiles:
    """A file, or all files of a folder, each counted once. Raises: OSError, TooManyFiles."""
    real = path.resolve(strict=True)
    filesystem = _filesystem(real, mounts.read_text(errors="surrogateescape"))
    return ModelFiles(_size_bytes(real), filesystem, "local" if _LOCAL.fullmatch(filesystem) else "network")


def _size_bytes(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    # Hugging Face's cache links to its files, several revisions to the same one.
    sizes: dict[tuple[int, int], int] = {}
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            seen += 1
            if seen > _FILES_LIMIT:
                raise TooManyFiles(f"more than {_FILES_LIMIT} files; name the folder of one model")
            try:
                status = os.stat(os.path.join(folder, name))
            except FileNotFoundError:
                # A link to a file that is gone, or a file that went meanwhile.
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _filesystem(path: Path, mounts: str) -> str:
    """The type of the mount that holds the path. Source: proc_pid_mountinfo(5)."""
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of two on one point the later lies over the other.
        if len(point.parts) >= longest and path.is_relative_to(point):
            found, longest = after.split(" ")[0], len(point.parts)
    return found
