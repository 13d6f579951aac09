"""Start, watch and stop the processes of one machine. Used by `headworks up` and `headworks demo`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class StartFailed(RuntimeError):
    """A process ended, or did not answer in time; the message holds the end of its log."""


def _die_with_parent() -> None:
    """In the child: a parent that was killed leaves nothing running (Linux)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One process, its log file, and how to tell that it is ready (`ready_url` answers 200)."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_dir: Path,
        environment: Mapping[str, str] | None = None,
        ready_url: str | None = None,
    ) -> None:
        self.name, self.argv, self.ready_url = name, list(argv), ready_url
        # What it prints stands in its log at once, and not only when it ends.
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.log = log_dir / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise StartFailed(f"{self.name} was not started")
        return self.process.pid

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C reaches this program alone, which then stops its children in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def wait_ready(self, timeout_seconds: float = 60) -> None:
        """Wait for `ready_url`. Raises StartFailed."""
        if self.ready_url is None:
            return
        url = self.ready_url
        self.wait_for(lambda: answers(url), f"answer at {url}", timeout_seconds)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Poll until the condition holds while this process runs: what another one answers does not count."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            holds = condition()
            if not self.running:
                raise StartFailed(f"{self.name} ended before there was an {what}:\n{self.log_tail()}")
            if holds:
                return
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name}: no {what} after {timeout_seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, grace_seconds: float = 10) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self, lines: int = 30) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"


def workers(redis_url: str) -> tuple[str, ...]:
    """The commands of `headworks` that run beside the web process. Without Redis the worker is the beat as well."""
    return ("worker", "beat") if redis_url else ("worker",)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Supervisor:
    """Children started in order, stopped in the opposite one. A context manager: leaving it stops all."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, child: Child, *, wait: bool = True) -> Child:
        self.children.append(child)
        child.start()
        if wait:
            child.wait_ready()
        return child

    def watch(self, *, poll_seconds: float = 0.5, backoff_seconds: float = 2.0) -> None:
        """Start again what ends, until interrupted."""
        while True:
            for child in self.children:
                if not child.running:
                    code = child.process.returncode if child.process else None
                    print(
                        f"{child.name} ended with {code}; starting it again (log: {child.log})",
                        file=sys.stderr,
                        flush=True,
                    )
                    time.sleep(backoff_seconds)
                    child.start()
            time.sleep(poll_seconds)

    def stop(self) -> None:
        for child in reversed(self.children):
            child.stop()
