"""Who a target is: its name and token, kept in `target.json` of its state directory (mode 0600)."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from wire.control_api import TargetRefused
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE, EnrolAnswer, Token
from wire.snapshot import EpochMillis, Name

FILE_NAME = "target.json"
_FILE_LIMIT_BYTES = 64 * 2**10


class Credentials(Struct, frozen=True):
    """`rotate_at_ms` is when half of the token's life is over; 0 where the file does not say."""

    name: Name
    token: Token
    expires_at_ms: EpochMillis
    rotate_at_ms: EpochMillis = 0

    def __repr__(self) -> str:
        return f"Credentials(name={self.name!r}, expires_at_ms={self.expires_at_ms})"


def credentials_of(name: str, answer: EnrolAnswer, now_ms: int) -> Credentials:
    """Credentials from an answer to enrolment or rotation that came at `now_ms`."""
    return Credentials(name, answer.token, answer.expires_at_ms, halfway(now_ms, answer.expires_at_ms))


def halfway(now_ms: int, expires_at_ms: int) -> int:
    return now_ms + max(0, expires_at_ms - now_ms) // 2


def store_credentials(state_dir: Path, credentials: Credentials) -> None:
    """Raises: OSError; the file is then as it was."""
    write_private(state_dir / FILE_NAME, msgspec.json.encode(credentials))


def load_credentials(state_dir: Path) -> Credentials | None:
    """The stored credentials, or None before enrolment.

    Raises: TargetRefused `damaged_credentials` for a file that holds something else, OSError if it cannot be read.
    """
    path = state_dir / FILE_NAME
    try:
        stored = msgspec.json.decode(read_bounded(path, _FILE_LIMIT_BYTES), type=Credentials)
    except FileNotFoundError:
        return None
    except (*UNREADABLE, ValueError) as error:
        # The cause may quote the file, and with it the token.
        message = f"{path} holds no credentials ({type(error).__name__}); remove it and enrol again"
        raise TargetRefused("damaged_credentials", message) from None
    if stored.rotate_at_ms == 0:
        return msgspec.structs.replace(stored, rotate_at_ms=halfway(int(time.time() * 1000), stored.expires_at_ms))
    return stored
