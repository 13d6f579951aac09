"""What a node's policy names to start, stop and restart a simulated engine: it stands in for systemd.

    python -m bench.support.engine_control start|stop|restart FILE

FILE is JSON: `argv`, `log`, `health` (a URL), and `pid` of the one that runs, which this command keeps up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

END_SECONDS, START_SECONDS, LOOK_SECONDS = 20.0, 60.0, 0.05


def write(file: Path, argv: list[str], log: Path, health: str) -> None:
    file.write_text(json.dumps({"argv": argv, "log": str(log), "health": health}))


def start(file: Path) -> None:
    """Returns once it is healthy."""
    held = json.loads(file.read_text())
    with Path(held["log"]).open("ab") as log:
        process = subprocess.Popen(
            held["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    file.write_text(json.dumps({**held, "pid": process.pid}))
    _until(lambda: _is_healthy(held["health"]), START_SECONDS, f"{held['health']} did not answer")


def stop(file: Path) -> None:
    """Returns once its process is gone."""
    held: dict[str, Any] = json.loads(file.read_text())
    pid = held.pop("pid", None)
    file.write_text(json.dumps(held))
    if pid is not None:
        _signal(pid, signal.SIGTERM)
        _until(lambda: not runs(pid), END_SECONDS, f"process {pid} did not end")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """A child of this process, ended, is waited for; a foreign one that has ended and is not yet is as good as gone."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(condition: Any, limit_seconds: float, what: str) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(what)
        time.sleep(LOOK_SECONDS)


def main(verb: str, file: Path) -> None:
    if verb in ("stop", "restart"):
        stop(file)
    if verb in ("start", "restart"):
        start(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
