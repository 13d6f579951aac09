"""Starting and stopping the processes of one machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from controlplane.processes import Child, StartFailed, Supervisor
from tests.services import Process, free_port, wait_for

PAGE = """
import http.server, sys
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A killed child of another process stays as a zombie until that one reaps it.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_a_child_is_ready_once_its_address_answers_and_stops_with_its_supervisor(tmp_path: Path) -> None:
    port = free_port()
    with Supervisor() as supervisor:
        url = f"http://127.0.0.1:{port}/"
        child = supervisor.start(Child("page", python(PAGE, str(port)), log_dir=tmp_path, ready_url=url))
        assert child.running
    assert not child.running
    assert gone(child.pid)


def test_a_child_that_ends_before_it_is_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    child = Child(
        "broken", python("raise SystemExit('no database')"), log_dir=tmp_path, ready_url="http://127.0.0.1:9/"
    )
    with Supervisor() as supervisor, pytest.raises(StartFailed, match="no database"):
        supervisor.start(child)


def test_what_another_process_answers_at_its_address_does_not_make_a_child_ready(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with Supervisor() as supervisor:
        supervisor.start(Child("other", python(PAGE, str(port)), log_dir=tmp_path, ready_url=url))
        child = Child("late", python("raise SystemExit('address taken')"), log_dir=tmp_path, ready_url=url)
        supervisor.start(child, wait=False)
        wait_for(lambda: not child.running, 10, "its end")
        with pytest.raises(StartFailed, match="address taken"):
            child.wait_ready()


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
    child = Child("stubborn", python(stubborn), log_dir=tmp_path)
    child.start()
    wait_for(lambda: "up" in child.log_tail(), 10, "the child to run")
    child.stop(grace_seconds=0.2)
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from controlplane.processes import Child
child = Child("child", [sys.executable, "-c", {SLEEP!r}], log_dir=Path({str(tmp_path)!r}))
child.start()
print("pid", child.pid, flush=True)
time.sleep(60)
"""
    log = tmp_path / "supervisor.log"
    parent = Process(python(code), log=log)
    pid = int(wait_for(lambda: log.read_text().partition("pid ")[2].strip(), 20, "the child's process id"))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: gone(pid), 10, "the child to end")
