"""`headworks-agent release-gpu`: this node's agent closes NVML while a command runs, and opens it again after."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from gpu_agent.nvml.release import OPEN_FILE, REQUEST_FILE, CannotRelease, Request

_POLL_SECONDS = 0.05
# The agent looks at the request for a moment; another command keeps it.
_TAKEN_SECONDS = 1.0
# As shells have it.
_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_ENDING = (signal.SIGINT, *_PASSED_ON)


@dataclass(frozen=True)
class ReleaseOptions:
    """`limit_seconds`: how long the agent stays away at most. `wait_seconds`: how long it may take to let go."""

    state_dir: Path
    limit_seconds: float
    wait_seconds: float


def release_gpu(options: ReleaseOptions, command: Sequence[str]) -> int:
    """Run `command`, an argument list, while NVML is closed; without one, wait for the limit or Ctrl-C.

    Its exit status; as a shell's where it ended by a signal (128 + n), is not there (127) or is no program (126).
    Raises: CannotRelease; the command was not run then.
    """
    until_seconds = time.monotonic() + options.limit_seconds
    if not command:
        # Taken by sigtimedwait alone from here on.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    with _released(options, until_seconds) as held:
        if command:
            return _run(command, until_seconds, held)
        _say(f"NVML is closed for {options.limit_seconds:g} s; Ctrl-C ends it sooner")
        signal.sigtimedwait(_ENDING, max(0, until_seconds - time.monotonic()))
        return 0


@contextlib.contextmanager
def _released(options: ReleaseOptions, until_seconds: float) -> Iterator[int | None]:
    """NVML is closed in the block. The descriptor that keeps it so; None where there is no agent to ask."""
    request = _opened(options.state_dir / REQUEST_FILE)
    if request is None:
        _say(f"no agent has run with the state folder {options.state_dir}: is --state-dir the agent's?")
        yield None
        return
    try:
        _ask(request, until_seconds)
        _wait_until_closed(options)
        yield request
    finally:
        # Not only closed: what the command left running may hold it, too.
        fcntl.flock(request, fcntl.LOCK_UN)
        os.close(request)


def _ask(request: int, until_seconds: float) -> None:
    deadline = time.monotonic() + _TAKEN_SECONDS
    while not _locked(request):
        if time.monotonic() >= deadline:
            raise CannotRelease("another release-gpu runs on this node: wait for its end")
        time.sleep(_POLL_SECONDS)
    said = msgspec.json.encode(Request(os.getpid(), until_seconds))
    try:
        os.ftruncate(request, 0)
        os.pwrite(request, said, 0)
    except OSError as error:
        raise CannotRelease(f"the agent cannot be asked: {error.strerror}: make room in its state folder") from error


def _wait_until_closed(options: ReleaseOptions) -> None:
    file = options.state_dir / OPEN_FILE
    descriptor = _opened(file)
    if descriptor is None:
        return
    try:
        if _locked(descriptor):
            _say("no agent has NVML open here")
            return
        deadline = time.monotonic() + options.wait_seconds
        while not _locked(descriptor):
            if time.monotonic() >= deadline:
                raise CannotRelease(
                    f"the agent has not let go of NVML within {options.wait_seconds:g} s: one of its processes hangs "
                    f"in the driver, or the agent itself. `fuser -v {file}` names them, the agent's log says more"
                )
            time.sleep(_POLL_SECONDS)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _opened(file: Path) -> int | None:
    """None: there is no such file. Never made here: the agent could not use one of another user's."""
    try:
        return os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotRelease(f"{file}: {error.strerror}: run this as the agent's user, or as root") from error


def _run(command: Sequence[str], until_seconds: float, held: int | None) -> int:
    running: list[subprocess.Popen[bytes]] = []
    # What comes while the command is being started: it may run already, and must hear of it.
    early: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if running:
            running[0].send_signal(number)
        else:
            early.append(number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    # A terminal sends Ctrl-C to the command as well, which says what becomes of it.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        # The command keeps NVML closed by itself where this process is killed: a reset under way must not find the
        # agent back.
        running.append(subprocess.Popen(command, pass_fds=() if held is None else (held,)))
        for came in early:
            running[0].send_signal(came)
    except FileNotFoundError:
        _say(f"{command[0]}: no such program")
        return _NOT_FOUND
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return _NOT_EXECUTABLE
    try:
        status = running[0].wait(max(0, until_seconds - time.monotonic()))
    except subprocess.TimeoutExpired:
        _say(f"the limit has passed: the agent opens NVML again, though {command[0]} still runs")
        status = running[0].wait()
    return status if status >= 0 else _BY_SIGNAL - status


def _say(text: str) -> None:
    print(f"headworks-agent release-gpu: {text}", file=sys.stderr)
