"""How an agent or a gateway becomes a target: at its first start, and again where its token is no longer taken."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from wire.control_api import TargetRefused
from wire.credentials import FILE_NAME, Credentials, enrol, load_credentials, sha256_of
from wire.files import read_bounded
from wire.messages import TargetKind
from wire.snapshot import NAME_PATTERN

log = logging.getLogger("headworks.target")
_RETRY_SECONDS = 5.0
_JOIN_TOKEN_FILE_BYTES = 1_000


class CannotEnrol(Exception):
    """This process cannot become a target as it is set up; the message says what to change."""


@dataclass(frozen=True)
class Enrolment:
    """What a first start needs. The file is read only if it comes to that and `join_token` is empty."""

    kind: TargetKind
    control_url: str
    name: str
    version: str
    state_dir: Path
    join_token: str = field(repr=False)
    join_token_file: Path


async def enrol_once(wanted: Enrolment) -> None:
    """Enrol unless that was done before, waiting for a control plane that is not there yet.

    Raises: CannotEnrol, or TargetRefused where the control plane or damaged credentials say no.
    """
    try:
        stored = load_credentials(wanted.state_dir)
    except OSError as error:
        raise CannotEnrol(f"credentials in {wanted.state_dir} cannot be read: {error.strerror}") from error
    if stored is not None:
        if stored.name != wanted.name:
            raise CannotEnrol(
                f"{wanted.state_dir} belongs to {wanted.kind} {stored.name!r}, not to {wanted.name!r}; "
                "give that name, or another state directory"
            )
        return
    try:
        join_token = wanted.join_token or _join_token_in(wanted.join_token_file)
    except CannotEnrol as error:
        raise CannotEnrol(f"not enrolled yet, and {error}; put a join token there") from error
    while True:
        try:
            await _enrol(wanted, join_token)
        except aiohttp.ClientError as error:
            log.warning("the control plane at %s does not answer: %s", wanted.control_url, error)
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS))  # noqa: S311 - spreads load
        except OSError as error:
            raise CannotEnrol(f"credentials cannot be kept in {wanted.state_dir}: {error.strerror}") from error
        else:
            log.info("enrolled as %s %s", wanted.kind, wanted.name)
            return


class EnrolAgain:
    """Enrols a target anew with a join token that was not tried before; what TargetClient takes as `enrol_again`.

    Called at each try with a refused token, so a new join token in the file is found without a restart.
    """

    def __init__(self, wanted: Enrolment) -> None:
        self._wanted = wanted
        # SHA-256 of join tokens that were refused since the start.
        self._refused: set[str] = set()

    async def __call__(self, refused: Credentials) -> str | None:
        """None once new credentials are stored, else what stands in the way and what to do."""
        wanted = self._wanted
        credentials = (wanted.state_dir / FILE_NAME).absolute()
        file = wanted.join_token_file.absolute()
        to_do = f"the token in {credentials} is of no more use: put a new join token into {file}"
        try:
            join_token = self._untried(refused)
        except CannotEnrol as error:
            return f"{to_do} ({error})"
        if join_token is None:
            return to_do
        try:
            await _enrol(wanted, join_token)
        except TargetRefused as error:
            # Other refusals are not of the join token, which is good for a later try.
            if "join_token" in error.code:
                self._refused.add(sha256_of(join_token))
            return f"{to_do} (the one at hand is refused: {error})"
        except aiohttp.ClientError as error:
            return f"enrolling again got no answer: {error}"
        except OSError as error:
            return f"new credentials cannot be kept in {wanted.state_dir}: {error.strerror}"
        log.info("enrolled again as %s %s", wanted.kind, wanted.name)
        return None

    def _untried(self, refused: Credentials) -> str | None:
        """The given join token or else the file's, if not tried before. Raises: CannotEnrol for an unusable file."""
        tried = self._refused | {refused.join_token_sha256}
        given = self._wanted.join_token
        if given and sha256_of(given) not in tried:
            return given
        in_file = _join_token_in(self._wanted.join_token_file)
        return None if sha256_of(in_file) in tried else in_file


async def _enrol(wanted: Enrolment, join_token: str) -> None:
    await enrol(
        control_url=wanted.control_url,
        join_token=join_token,
        kind=wanted.kind,
        name=wanted.name,
        version=wanted.version,
        state_dir=wanted.state_dir,
    )


def own_name(kind: TargetKind, chosen: str) -> str:
    """The chosen name, or the host's. Raises: CannotEnrol where it cannot name a target."""
    name = chosen or socket.gethostname().lower()
    if not re.fullmatch(NAME_PATTERN, name):
        raise CannotEnrol(f"{name!r} cannot be a {kind}'s name: at most 63 of a-z 0-9 . _ - from a letter or digit on")
    return name


def _join_token_in(path: Path) -> str:
    try:
        token = read_bounded(path, _JOIN_TOKEN_FILE_BYTES).decode().strip()
    except UnicodeDecodeError:
        # The error quotes the file.
        raise CannotEnrol(f"{path} holds no join token but other bytes") from None
    except (OSError, ValueError) as error:
        raise CannotEnrol(f"the join token cannot be read from {path}: {error}") from error
    if not token:
        raise CannotEnrol(f"{path} is empty")
    return token
