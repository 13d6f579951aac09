"""A target's slice: how events build it, and the file that keeps the last known good one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from wire.canonical import content_hash, merge_patch
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE, LastKnownGood, PatchEvent, SnapshotEvent

FILE_NAME = "last-known-good.json"
# The file holds the content of one event and a little around it.
_FILE_OVERHEAD_BYTES = 4096


class Unverified(ValueError):
    """A slice that cannot be trusted or built; the message says why."""


def next_slice(before: LastKnownGood | None, event: SnapshotEvent | PatchEvent) -> LastKnownGood:
    """The slice that `event` leads to from the one received before, its hash verified.

    Raises: Unverified; the whole slice must then be asked for.
    """
    if isinstance(event, SnapshotEvent):
        content = event.content
    elif before is not None and before.revision == event.from_revision:
        content = merge_patch(before.content, event.patch)
    else:
        held = before.revision if before else 0
        raise Unverified(f"a patch from revision {event.from_revision} came while holding revision {held}")
    return _verified(LastKnownGood(event.revision, event.hash, content))


def keep_slice(state_dir: Path, good: LastKnownGood) -> None:
    """Raises: OSError; the file is then as it was."""
    write_private(state_dir / FILE_NAME, msgspec.json.encode(good))


def kept_slice(state_dir: Path, limit_bytes: int) -> LastKnownGood | None:
    """The kept slice, None if there is no file. Raises: Unverified for a damaged one, OSError if it is unreadable."""
    try:
        data = read_bounded(state_dir / FILE_NAME, limit_bytes + _FILE_OVERHEAD_BYTES)
        return _verified(msgspec.json.decode(data, type=LastKnownGood))
    except FileNotFoundError:
        return None
    except (*UNREADABLE, ValueError) as error:
        raise Unverified(str(error)) from error


def set_aside(state_dir: Path) -> Path:
    """Move the kept slice out of the way for a person to look at. Raises: OSError."""
    path = state_dir / FILE_NAME
    return path.replace(path.with_name(f"{FILE_NAME}.damaged"))


def _verified(found: LastKnownGood) -> LastKnownGood:
    if content_hash(found.content) != found.hash:
        raise Unverified(f"the hash of revision {found.revision} does not match its content")
    return found
