"""A folder beside a manifest: what is there, what lacks, what is wrong. By sizes, and by what was read before."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpu_agent.model_files.ledger import Ledger, Stat
from wire.manifest import Manifest

State = Literal["absent", "partial", "present", "whole", "damaged"]
_NAMED = 5


@dataclass
class Found:
    """Paths below the folder: `lacking` with those that are shorter, `wrong`, and those of the right size `unread`."""

    present_bytes: int = 0
    lacking: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        if self.wrong:
            return "damaged"
        if self.lacking:
            return "partial" if self.present_bytes else "absent"
        return "present" if self.unread else "whole"

    @property
    def detail(self) -> str:
        parts = [_listed("differ", self.wrong), _listed("lack", self.lacking), _listed("not read yet", self.unread)]
        return "; ".join(part for part in parts if part)


def look(folder: Path, manifest: Manifest, ledger: Ledger) -> Found:
    """Reads no file. Raises: OSError where the folder cannot be looked into."""
    found = Found()
    for path, wanted in manifest.files.items():
        place = folder / path
        try:
            status = os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            found.lacking.append(path)
            continue
        size_bytes = status.st_size
        if not stat.S_ISREG(status.st_mode) or size_bytes > wanted.size_bytes:
            found.wrong.append(path)
            continue
        found.present_bytes += size_bytes
        sha256 = ledger.sha256_of(str(place), Stat.of(status))
        if size_bytes < wanted.size_bytes:
            found.lacking.append(path)
        elif sha256 is None:
            found.unread.append(path)
        elif sha256 != wanted.sha256:
            found.wrong.append(path)
    return found


def _listed(what: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"{what}: {', '.join(paths[:_NAMED])}{more}"
