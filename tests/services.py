"""Real services for the tests: found or skipped by name, started on free loopback ports, stopped by process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import pytest

from tests.programs import PROGRAMS

T = TypeVar("T")
LOG_TAIL_CHARACTERS = 4000


def missing_program(*names: str) -> str | None:
    """What to install for the first of `names` that this machine lacks; None if it lacks none."""
    for name in names:
        if PROGRAMS[name].find() is None:
            return f"needs {name}: apt-get install {PROGRAMS[name].package}"
    return None


def in_ci() -> bool:
    return os.environ.get("HEADWORKS_CI", "") not in ("", "0")


def service_binary(name: str) -> Path:
    """Path of a program in `tests.programs`. Where it is missing the test is skipped by name; in CI it fails."""
    if found := PROGRAMS[name].find():
        return found
    reason = missing_program(name) or name
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


# Below the ports that Linux gives to outgoing connections, one of which could take a port between probe and use.
QUIET_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago."""
    while True:
        # Not `random`, which is seeded alike for every test.
        port = secrets.choice(QUIET_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(condition: Callable[[], T], timeout_s: float, what: str, poll_s: float = 0.05) -> T:
    """Poll `condition` until it answers something true, and return that. AssertionError names `what` did not come."""
    deadline = time.monotonic() + timeout_s
    while True:
        if answer := condition():
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(poll_s)


class Process:
    """A child process with a log file, ended by its own id: asked first, killed with its children if it stays.

    As a context manager it prints the end of its log when the block fails, so that the test's report holds it. A
    process that must be killed fails the test: users would wait for it too.
    `user` is the account to run as where the tests run as root; some servers refuse root.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: pwd.struct_passwd | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.argv = [str(part) for part in argv]
        self.log, self.stop_signal = log, stop_signal
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment} if environment else None,
                cwd=cwd,
                start_new_session=True,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=() if user else None,
            )
        self.pid = self._child.pid

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    def wait_until(self, condition: Callable[[], T], what: str, timeout_s: float = 30) -> T:
        """As `wait_for`, but ends at once, with the log, when the process has."""

        def alive_and() -> T:
            if (code := self.exit_code) is not None:
                raise AssertionError(f"{self.argv[0]} ended with {code} before {what}:\n{self.log_tail()}")
            return condition()

        try:
            return wait_for(alive_and, timeout_s, what)
        except AssertionError:
            if self.exit_code is None:
                print(f"--- {self.log}\n{self.log_tail()}", file=sys.stderr)
            raise

    def wait_for_port(self, port: int, timeout_s: float = 30) -> None:
        self.wait_until(lambda: accepts(port), f"port {port} of {self.argv[0]}", timeout_s)

    def wait_for_http(self, url: str, timeout_s: float = 30) -> None:
        self.wait_until(lambda: answers_ok(url), f"200 from {url}", timeout_s)

    def wait(self, timeout_s: float = 30) -> int:
        """The exit code, once it ends by itself."""
        return self._child.wait(timeout_s)

    def stop(self, timeout_s: float = 10) -> int:
        """Ask it to end; the exit code. One that does not within `timeout_s` is killed. Raises AssertionError then."""
        if self.exit_code is None:
            self._child.send_signal(self.stop_signal)
            try:
                self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(
                    f"{self.argv[0]} did not end within {timeout_s:g} s of {self.stop_signal.name}:\n{self.log_tail()}"
                ) from None
        return self._child.returncode

    def kill(self) -> int:
        """SIGKILL to it and its children, as a crash would end it."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        return self._child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        try:
            self.stop()
        except AssertionError as late:
            error.add_note(str(late))
        print(f"--- {self.log}\n{self.log_tail()}", file=sys.stderr)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def answers_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
