"""The simulator as a child process: given JSON on its standard input, heard while it works, ended when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any

# So long a child that was told to end, or that is over its time, is waited for.
GRACE_SECONDS = 5.0
LOOK_SECONDS = 1.0
REPORT_MAX_BYTES = 32 * 2**20


class ChildFailed(RuntimeError):
    """It gave no report; the message says why, by name."""


class Stopped(RuntimeError):
    """It was ended as nobody wants its report any more."""


def run(module: str, document: Any, limit_seconds: float, heard: Callable[[dict[str, Any]], bool]) -> Any:
    """What `python -m simulator.…` answers. `heard` gets its last line of progress, once a second; False ends it.

    Raises ChildFailed, Stopped.
    """
    # Files: a child that reads nothing holds up nobody.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answer:
        given.write(json.dumps(document).encode())
        given.seek(0)
        child = _begun(module, given, answer)
        try:
            listener = _Listener(child)
            _wait(child, listener, limit_seconds, heard)
        finally:
            end(child)
        listener.join()
        answer.seek(0)
        return _report(child.returncode, answer.read(REPORT_MAX_BYTES + 1), listener.last_words)


def _begun(module: str, given: IO[bytes], answer: IO[bytes]) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", module]
    try:
        # Its own session, so that its processes end with it.
        return subprocess.Popen(words, stdin=given, stdout=answer, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise ChildFailed(f"{module} cannot be started: {error.strerror}") from error


class _Listener(threading.Thread):
    """Reads what the child says of its progress; other lines are its last words."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._child = child
        self.progress: dict[str, Any] = {}
        self.last_words = ""
        self.start()

    def run(self) -> None:
        for line in self._child.stderr or ():
            try:
                self.progress = dict(json.loads(line))
            except (ValueError, TypeError):
                self.last_words = line.decode(errors="replace").strip() or self.last_words


def _wait(
    child: subprocess.Popen[bytes], listener: _Listener, limit_seconds: float, heard: Callable[[dict[str, Any]], bool]
) -> None:
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            child.wait(LOOK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            if not heard(listener.progress):
                raise Stopped from None
            if time.monotonic() > deadline:
                raise ChildFailed(f"it took longer than {limit_seconds:.0f} s") from None


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child with a session of its own, and what it started, however far it is."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _report(status: int, text: bytes, last_words: str) -> Any:
    if len(text) > REPORT_MAX_BYTES:
        raise ChildFailed(f"its report is larger than {REPORT_MAX_BYTES} bytes; give fewer settings or loads")
    try:
        report = json.loads(text)
    except ValueError:
        raise ChildFailed(f"it ended with status {status} and no report: {last_words or 'it said nothing'}") from None
    if status == 0:
        return report
    problems = [f"{problem['path']}: {problem['message']}" for problem in report.get("problems", [])]
    raise ChildFailed("; ".join(problems[:10]) or str(report.get("error")))
