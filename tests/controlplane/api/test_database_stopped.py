"""A real web process whose PostgreSQL stands still, its connections open."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from controlplane.api.database_check import WAIT_SECONDS
from tests.controlplane.configs.live import live_site
from tests.servers import postgres_server
from tests.services import wait_for


def readiness(address: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """No connection to this database gets an answer, and a new one is not taken."""
    with psycopg.connect(url) as connection:
        file = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
        others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        pids = [int(file[0].split()[0])] if file else []
        pids += [pid for (pid,) in connection.execute(others)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_readiness_is_told_in_time_and_comes_back(tmp_path: Path) -> None:
    with postgres_server() as url, live_site(tmp_path, HEADWORKS_DATABASE_URL=url) as live:
        assert readiness(live.address) == (200, {"status": "ready", "missing": []})
        with stopped(url):
            began = time.monotonic()
            wait_for(lambda: readiness(live.address)[0] == 503, 20, "an answer that it is not ready")
            # One kept answer may come first.
            assert time.monotonic() - began < WAIT_SECONDS + 3
            assert readiness(live.address)[1]["missing"] == ["the database does not answer"]
        wait_for(lambda: readiness(live.address)[0] == 200, 30, "readiness")
