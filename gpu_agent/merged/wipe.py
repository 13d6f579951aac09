"""Empties the folder that vLLM's processes write their metrics to, as must be done before each start of them."""

from __future__ import annotations

from pathlib import Path


class NotWiped(Exception):
    """Nothing was removed; the message says what would be right."""


def wipe(folder: Path) -> int:
    """Remove the `.db` files and say how many. A folder that is not there needs none. Raises: NotWiped."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotWiped(f"{folder} is no folder: give the one that PROMETHEUS_MULTIPROC_DIR names")
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise NotWiped(f"{folder} cannot be read: {error.strerror}") from error
    foreign = [file.name for file in found if file.suffix != ".db" or not file.is_file()]
    if foreign:
        raise NotWiped(f"{folder} holds other things than metrics ({foreign[0]!r}): give a folder for them alone")
    try:
        for file in found:
            file.unlink()
    except OSError as error:
        raise NotWiped(f"{folder} cannot be wiped: {error.strerror}") from error
    return len(found)
