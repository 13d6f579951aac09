"""A PostgreSQL of a benchmark's own, where Debian's is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.support.control_plane import wait_for
from bench.support.processes import ending
from controlplane.demo.ports import free_port

_PROGRAMS = "usr/lib/postgresql/*/bin/initdb"
# It refuses to run as root; Debian's package makes this user.
_USER = "postgres"


def installed() -> Path | None:
    """The folder of the newest PostgreSQL's programs; None: there is none."""
    newest = max(Path("/").glob(_PROGRAMS), default=None)
    return newest and newest.parent


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """URL of an empty database, whose data are thrown away afterwards."""
    user = _USER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="headworks-bench-postgres-") as name:
        folder, port = Path(name), free_port()
        if user:
            shutil.chown(folder, user)
        data = folder / "data"
        make: list[str | Path] = [
            programs / "initdb",
            "--pgdata",
            data,
            "--username",
            "bench",
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)
        options = ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=")
        command: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            *(word for option in options for word in ("-c", option)),
        ]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL, user=user, cwd=folder)
        url = f"postgres://bench@127.0.0.1:{port}/postgres"
        with ending(server, 10):
            wait_for(lambda: _answers(url), "PostgreSQL")
            yield url


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=1).close()
    except psycopg.OperationalError:
        return False
    return True
