"""Who may have NVML open now: the agent's children, or nobody, while something on the node needs it closed.

Any NVML client blocks a GPU reset, a change of MIG mode and the unloading of the driver. Two files of the agent's state
folder settle it by flock(2), which ends with its holder, so that kill -9 of either side leaves nothing behind:

    nvml-open.lock     shared by every child that has NVML open, for as long as it lives
    nvml-release.lock  held by a `release-gpu` command that wants NVML closed; says who it is and until when
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from wire.messages import UNREADABLE

log = logging.getLogger("headworks.agent.nvml")
OPEN_FILE = "nvml-open.lock"
REQUEST_FILE = "nvml-release.lock"
# As with an act of the control plane: whoever needs longer asks again.
MAX_SECONDS = 3600
_REQUEST_LIMIT_BYTES = 200


class Request(Struct, frozen=True):
    """What a `release-gpu` command wrote. `until_seconds`: on the node's monotonic clock (CLOCK_MONOTONIC)."""

    pid: int
    until_seconds: float


@dataclass(frozen=True)
class Release:
    """One time for which NVML is closed. `says`: for whom and until when, in words."""

    until_seconds: float
    says: str


class NotReleased(Exception):
    """NVML is still open though it should be closed; the message says by what."""


class CannotRelease(Exception):
    """`release-gpu` ran no command; the message says why, and what to do."""


class NvmlReleased(Exception):
    """NVML may not be opened now."""


class Releases:
    """What keeps NVML closed: the agent's own word (`begin`), or a command on this node.

    `clock`: the node's monotonic one in seconds, on which commands count as well.
    """

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._open_file, self._request_file = state_dir / OPEN_FILE, state_dir / REQUEST_FILE
        self._clock = clock
        self._own: Release | None = None
        # The same words for as long as one request stands, whatever the wall clock does.
        self._requested: tuple[Request, Release] | None = None
        self._unlocked = False

    def prepare(self) -> None:
        """Lay out the files. Without them a `release-gpu` command takes it that no agent is there."""
        try:
            self._open_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for file in (self._open_file, self._request_file):
                os.close(_opened(file, os.O_CREAT))
        except OSError as error:
            self._unlock(error)

    def begin(self, for_seconds: float) -> None:
        """Keep NVML closed for so long, or for as long as the last such call says. At most MAX_SECONDS."""
        for_seconds = min(for_seconds, MAX_SECONDS)
        self._own = Release(self._clock() + for_seconds, _says(for_seconds, "the control plane"))

    def end(self) -> None:
        """Take back what `begin` said. A command's request stands."""
        self._own = None

    def now(self) -> Release | None:
        """What keeps NVML closed now; None: it may be open."""
        now_seconds = self._clock()
        if self._own is not None and self._own.until_seconds <= now_seconds:
            self._own = None
        return self._own or self._request(now_seconds)

    def lock(self) -> int | None:
        """A descriptor that a child must hold while it has NVML open; None where the files cannot be used.

        Raises: NvmlReleased.
        """
        try:
            descriptor = _opened(self._open_file, os.O_CREAT)
        except OSError as error:
            self._unlock(error)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise NvmlReleased from error
            self._unlock(error)
            return None
        # A command asks first and then looks whether NVML is open: here it is the other way about, so that one sees
        # the other.
        if self.now() is not None:
            os.close(descriptor)
            raise NvmlReleased
        return descriptor

    def _request(self, now_seconds: float) -> Release | None:
        request = _standing_request(self._request_file)
        if request is None or not now_seconds < request.until_seconds <= now_seconds + MAX_SECONDS:
            return None
        if self._requested is None or self._requested[0] != request:
            by = f"release-gpu (process {request.pid})"
            says = _says(request.until_seconds - now_seconds, by)
            self._requested = request, Release(request.until_seconds, says)
        return self._requested[1]

    def _unlock(self, error: OSError) -> None:
        if not self._unlocked:
            log.warning("release-gpu will not see that this agent has NVML open: %s", error)
        self._unlocked = True


def _says(for_seconds: float, by: str) -> str:
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + for_seconds))
    return f"released until {until} for {by}"


def _standing_request(file: Path) -> Request | None:
    """The request of a command that is still there; None where there is none, or it has not been written yet."""
    try:
        descriptor = _opened(file)
    except OSError:
        return None
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        request = msgspec.json.decode(os.pread(descriptor, _REQUEST_LIMIT_BYTES, 0), type=Request)
        return request if math.isfinite(request.until_seconds) else None
    except (OSError, *UNREADABLE):
        return None
    finally:
        os.close(descriptor)


def _opened(file: Path, flags: int = 0) -> int:
    return os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600)
