"""A control plane of its own for a benchmark: the web process, what it costs, and targets that join it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.support.processes import ending
from controlplane.demo.ports import free_port
from controlplane.rest_client import Rest
from wire import PROTOCOL

START_SECONDS = 60.0
# The audit's word for all that a benchmark writes.
REASON = "benchmark"


@contextmanager
def web_process(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[tuple[Rest, int]]:
    """A control plane with its own database, as an admin's script and a process id. `settings` by variable."""
    port = free_port()
    embedded = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": ""}
    own = {"HEADWORKS_DATA_DIR": str(folder), "HEADWORKS_HOST": "127.0.0.1", "HEADWORKS_PORT": str(port)}
    # Its nodes follow their streams and report nothing: silent, and not lost.
    patient = {"HEADWORKS_TARGET_SILENT_SECONDS": "3600"}
    environment = {**os.environ, **embedded, **own, **patient, **(settings or {})}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "controlplane.cli", *words]
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    run("migrate")
    token = run("create-token", "admin", "bench", "--role", "admin").strip()
    with (folder / "web.log").open("wb") as log:
        command = [sys.executable, "-m", "controlplane.cli", "web"]
        web = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    with ending(web, 10):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/readyz"), "the web process")
        yield Rest(url, token, REASON), web.pid


def enrol(rest: Rest, kind: str, name: str) -> str:
    secret = rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
    body = {"join_token": secret, "kind": kind, "name": name, "version": "bench", "protocol": PROTOCOL}
    return str(rest.post("/targets/enrol", body)["token"])


@contextmanager
def following(urls: Iterable[str], tokens: Iterable[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Targets that follow their streams at web processes, in a process of their own (`push_clients`).

    Calling what is yielded ends it and gives what it noted. Raises RuntimeError where it ends too early.
    """
    command = [sys.executable, "-m", "bench.support.push_clients", *(f"{url}/api/v1" for url in urls)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def line() -> str:
            if process.stdout is None or not (found := process.stdout.readline()):
                raise RuntimeError("the targets' process ended")
            return found

        def end() -> dict[str, Any]:
            process.send_signal(signal.SIGTERM)
            noted: dict[str, Any] = json.loads(line())
            return noted

        try:
            if process.stdin is not None:
                process.stdin.write("\n".join(tokens))
                process.stdin.close()
            line()
            yield end
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def wait_for(condition: Callable[[], bool], what: str) -> None:
    if not wait_until(condition, START_SECONDS):
        raise RuntimeError(f"waited {START_SECONDS:g} s for {what}")
