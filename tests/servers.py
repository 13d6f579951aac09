"""PostgreSQL and Redis for the tests: fresh, on a free loopback port, gone with their folder."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import redis
from psycopg.errors import DuplicateDatabase

from tests.services import Process, free_port, service_binary, wait_for

# More than the workers of any test run: each takes a database of its own.
REDIS_DATABASES = 64
START_SECONDS = 30.0


class Server:
    """One server in a folder of its own, running within the block. Killed, it starts again on what it left."""

    def __init__(
        self,
        url: str,
        argv: Sequence[str | Path],
        ready: Callable[[], bool],
        folder: Path,
        user: pwd.struct_passwd | None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.url = url
        self._argv, self._ready, self._folder, self._user, self._stop_signal = argv, ready, folder, user, stop_signal
        self._process = self._run()

    def start(self) -> None:
        """Returns once it answers. Raises AssertionError where it does not in time."""
        wait_for(self._began, START_SECONDS, f"an answer of {self._argv[0]}")

    def kill(self) -> None:
        """SIGKILL; PostgreSQL's children see that their parent is gone, and end."""
        self._process.kill()

    def _began(self) -> bool:
        # PostgreSQL refuses to start before the last child of one that was killed has ended.
        if self._process.exit_code is not None:
            self._process = self._run()
        return self._ready()

    def _run(self) -> Process:
        return Process(
            self._argv, log=self._folder / "log", cwd=self._folder, user=self._user, stop_signal=self._stop_signal
        )

    def __enter__(self) -> Self:
        try:
            self._process.wait_until(self._ready, "an answer", START_SECONDS)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, trace)


@contextmanager
def postgres_server(password: str | None = None) -> Iterator[str]:
    """URL of the empty database `headworks` on a PostgreSQL of its own; its user may create databases.

    `password` is that user's, a random one where none is given.
    """
    with own_postgres(password) as server:
        yield server.url


@contextmanager
def own_postgres(password: str | None = None) -> Iterator[Server]:
    """As `postgres_server`, for a test that disturbs it."""
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
            "full_page_writes": "off",
            # Of tables that are empty and never analysed it expects so much that compiling a query seems to pay.
            "jit": "off",
        }
        argv: list[str | Path] = [postgres, "-D", folder / "data"]
        argv += [f"--{name}={value}" for name, value in options.items()]
        address = f"postgresql://headworks:{password}@127.0.0.1:{port}"
        # SIGINT: end without waiting for clients to leave.
        with Server(
            f"{address}/headworks", argv, lambda: _has_database(f"{address}/postgres"), folder, user, signal.SIGINT
        ) as server:
            yield server


@contextmanager
def stopped_postgres(url: str) -> Iterator[None]:
    """SIGSTOP: no connection to this database gets an answer, and a new one is not taken. SIGCONT after the block."""
    with psycopg.connect(url) as connection:
        file = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
        others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        pids = [int(file[0].split()[0])] if file else []
        pids += [pid for (pid,) in connection.execute(others)]
    for pid in pids:
        # A connection may have been left meanwhile.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def redis_server() -> Iterator[str]:
    """URL of an empty Redis without its database number: append `/0` to `/63`."""
    with own_redis() as server:
        yield server.url


@contextmanager
def own_redis() -> Iterator[Server]:
    """As `redis_server`, for a test that disturbs it."""
    binary = service_binary("redis-server")
    with _own_folder() as (folder, user):
        port = free_port()
        options = ["--bind", "127.0.0.1", "--port", str(port), "--databases", str(REDIS_DATABASES), "--save", ""]
        url = f"redis://127.0.0.1:{port}"
        with Server(url, [binary, *options, "--dir", folder], lambda: _pings(url), folder, user) as server:
            yield server


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


def _has_database(url: str) -> bool:
    """Whether it answers; the database is made the first time."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection, suppress(DuplicateDatabase):
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
