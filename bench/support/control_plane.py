"""A control plane of its own for a benchmark: the web process, what it costs, and targets that join it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
