"""Who a target is: its name and token, got by enrolment, kept in `target.json` of its state directory (mode 0600)."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct

from wire import PROTOCOL
from wire.control_api import TargetRefused, TargetUnavailable, call
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE, EnrolAnswer, EnrolRequest, TargetKind, Token
from wire.snapshot import EpochMillis, Name

FILE_NAME = "target.json"
_FILE_LIMIT_BYTES = 64 * 2**10


class Credentials(Struct, frozen=True):
    """`rotate_at_ms` is when half of the token's life is over; 0 where the file does not say.

    `join_token_sha256` tells the join token that was traded for them from a new one; empty where it is not known.
    """

    name: Name
    token: Token
    expires_at_ms: EpochMillis
    rotate_at_ms: EpochMillis = 0
    join_token_sha256: str = ""

    def __repr__(self) -> str:
        return f"Credentials(name={self.name!r}, expires_at_ms={self.expires_at_ms})"


async def enrol(
    *, control_url: str, join_token: str, kind: TargetKind, name: str, version: str, state_dir: Path
) -> None:
    """Trade a single-use join token for credentials and store them in `state_dir`.

    Raises: TargetRefused, aiohttp.ClientError, or OSError if the credentials cannot be stored.
    """
    # The join token works once: find out first whether its answer can be kept.
    probe = state_dir / "enrolling"
    write_private(probe, b"")
    probe.unlink()
    request = EnrolRequest(join_token, kind, name, version, PROTOCOL)
    url = f"{control_url.rstrip('/')}/api/v1/targets/enrol"
    async with aiohttp.ClientSession() as session:
        answer = enrol_answer(await call(session, "POST", url, body=msgspec.json.encode(request)))
    store_credentials(state_dir, credentials_of(name, answer, int(time.time() * 1000), sha256_of(join_token)))


def enrol_answer(body: bytes) -> EnrolAnswer:
    """Raises: TargetUnavailable for a body that is none."""
    try:
        return msgspec.json.decode(body, type=EnrolAnswer)
    except UNREADABLE:
        raise TargetUnavailable("answered with something that holds no token and expiry") from None


def credentials_of(name: str, answer: EnrolAnswer, now_ms: int, join_token_sha256: str) -> Credentials:
    """Credentials from an answer to enrolment or rotation that came at `now_ms`."""
    rotate_at_ms = halfway(now_ms, answer.expires_at_ms)
    return Credentials(name, answer.token, answer.expires_at_ms, rotate_at_ms, join_token_sha256)


def sha256_of(join_token: str) -> str:
    return hashlib.sha256(join_token.encode()).hexdigest()


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
