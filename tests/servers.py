"""PostgreSQL and Redis for the tests: fresh, on a free loopback port, gone with their folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis

from tests.services import Process, free_port, service_binary

# More than the workers of any test run: each takes a database of its own.
REDIS_DATABASES = 64


@contextmanager
def postgres_server(password: str | None = None) -> Iterator[str]:
    """URL of the empty database `headworks` on a PostgreSQL of its own; its user may create databases.

    `password` is that user's, a random one where none is given.
    """
    initdb, postgres = service_binary("initdb"), service_binary("postgres")
    with _own_folder() as (folder, user):
        password, port = password or secrets.token_urlsafe(16), free_port()
        password_file = folder / "password"
        password_file.write_text(password)
        _give(password_file, user)
        subprocess.run(
            [
                initdb, "--pgdata", folder / "data", "--username", "headworks", "--pwfile", password_file,
                "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
            ],
            check=True, capture_output=True, cwd=folder,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=() if user else None,
        )  # fmt: skip
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "200",
            # Outlives a killed process, not a power cut: enough for a database that is thrown away, and much faster.
            "fsync": "off",
        }
        argv: list[str | Path] = [postgres, "-D", folder / "data"]
        argv += [f"--{name}={value}" for name, value in options.items()]
        # SIGINT: end without waiting for clients to leave.
        with Process(argv, log=folder / "log", cwd=folder, user=user, stop_signal=signal.SIGINT) as process:
            server = f"postgresql://headworks:{password}@127.0.0.1:{port}"
            process.wait_until(lambda: _create_database(f"{server}/postgres"), "a connection to PostgreSQL")
            yield f"{server}/headworks"


@contextmanager
def redis_server() -> Iterator[str]:
    """URL of an empty Redis without its database number: append `/0` to `/63`."""
    binary = service_binary("redis-server")
    with _own_folder() as (folder, user):
        port = free_port()
        options = ["--bind", "127.0.0.1", "--port", str(port), "--databases", str(REDIS_DATABASES), "--save", ""]
        with Process([binary, *options, "--dir", folder], log=folder / "log", cwd=folder, user=user) as process:
            url = f"redis://127.0.0.1:{port}"
            process.wait_until(lambda: _pings(url), "a PONG from Redis")
            yield url


@contextmanager
def _own_folder() -> Iterator[tuple[Path, pwd.struct_passwd | None]]:
    """A folder for one server, and the account to run it as: PostgreSQL refuses root, and no server needs it."""
    user = _server_account() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="headworks-server-"))
    try:
        _give(folder, user)
        yield folder, user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server_account() -> pwd.struct_passwd:
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def _give(path: Path, user: pwd.struct_passwd | None) -> None:
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def _create_database(url: str) -> bool:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            connection.execute("CREATE DATABASE headworks")
    except psycopg.OperationalError:
        return False
    return True


def _pings(url: str) -> bool:
    with redis.Redis.from_url(f"{url}/0") as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
