"""A real web process with a database of its own, and targets that talk to it over HTTP."""

from __future__ import annotations

import http.client
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg

from controlplane.rest_client import Rest
from tests.services import Process, free_port
from wire import PROTOCOL
from wire.canonical import content_hash, merge_patch
from wire.messages import LastKnownGood, PatchEvent, PeersEvent, SnapshotEvent, decode_sse
from wire.slices import next_slice
from wire.sse import SseParser

REASON = "because of a test"
PATIENCE_SECONDS = 20.0
# In one process, which takes longer to start than most of these.
_SET_UP = """
import django
from django.core.management import call_command

django.setup()
call_command("migrate", verbosity=0)
call_command("collectstatic", interactive=False, verbosity=0)

from controlplane.cli import main

for command in ("create-user root --role admin", "create-token root live --role admin"):
    if main(command.split()):
        raise SystemExit(f"failed: {command}")
"""


class Database(NamedTuple):
    """One on the server that this run tests. Both are empty for SQLite, whose file lies in the data folder."""

    name: str
    settings: dict[str, str]


@contextmanager
def database_of_its_own(template: str = "template1") -> Iterator[Database]:
    """A fresh database, or a copy of the one named."""
    database = _new_database(template)
    try:
        yield database
    finally:
        if database.name:
            _as_admin(f"DROP DATABASE {database.name} WITH (FORCE)")


def _new_database(template: str) -> Database:
    server = os.environ.get("HEADWORKS_DATABASE_URL", "")
    if not server:
        return Database("", {})
    name = f"live_{uuid.uuid4().hex[:12]}"
    _as_admin(f"CREATE DATABASE {name} TEMPLATE {template}")
    return Database(name, {"HEADWORKS_DATABASE_URL": urlunsplit(urlsplit(server)._replace(path=f"/{name}"))})


def _as_admin(statement: str) -> None:
    with psycopg.connect(os.environ["HEADWORKS_DATABASE_URL"], autocommit=True) as admin:
        admin.execute(statement)


class Site(NamedTuple):
    """A site that nobody has used yet: its data folder, its database, the token of an admin."""

    folder: TemporaryDirectory[str]
    database: Database
    token: str


@cache
def _new_site(*, on_sqlite: bool) -> Site:
    """What takes a site seconds to make, made once a test process; each test has a copy of it."""
    # The folder goes with this process, the database with the run's server.
    folder = TemporaryDirectory(prefix="headworks-site-")
    database = Database("", {"HEADWORKS_DATABASE_URL": ""}) if on_sqlite else _new_database("template1")
    return Site(folder, database, _set_up({**_environment(Path(folder.name)), **database.settings}))


def _set_up(environment: dict[str, str]) -> str:
    """What a site needs before it is started; the token of an admin."""
    return _run(environment, "-c", _SET_UP).split()[-1]


def _environment(data: Path) -> dict[str, str]:
    return {"HEADWORKS_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}


def _run(environment: dict[str, str], *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Live:
    """One web process on a free port. `start` after `kill` goes on with the same database."""

    def __init__(self, directory: Path, environment: dict[str, str], token: str | None) -> None:
        """`token`: of an admin whom the database knows already; without one the site is set up first."""
        self.directory = directory
        self.environment = {**_environment(directory / "data"), **environment}
        self._listen_on(free_port())
        self.rest = Rest(self.address, token or _set_up(self.environment), REASON)

    def _listen_on(self, port: int) -> None:
        self.port, self.address = port, f"http://127.0.0.1:{port}"
        self.environment = {**self.environment, "HEADWORKS_PORT": str(port)}
        self.process: Process | None = None

    def neighbour(self) -> Live:
        """A second web process of the same site, on a port of its own, not started yet."""
        other = copy(self)
        other._listen_on(free_port())
        other.rest = Rest(other.address, self.rest.token, REASON)
        return other

    def run(self, *argv: str) -> str:
        return _run(self.environment, *argv)

    def start(self) -> None:
        argv = [sys.executable, "-m", "controlplane.cli", "web"]
        self.process = Process(argv, log=self.directory / f"web-{self.port}.log", environment=self.environment)
        self.process.wait_for_http(f"{self.address}/readyz")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    def stop(self) -> int:
        assert self.process is not None
        return self.process.stop()

    def enrol(self, kind: str, name: str) -> LiveTarget:
        join_token = self.rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
        body = {"join_token": join_token, "kind": kind, "name": name, "version": "test", "protocol": PROTOCOL}
        return LiveTarget(self, Rest(self.address, "", REASON).post("/targets/enrol", body)["token"])

    def revision(self) -> int:
        return int(self.rest.get("/config/convergence")["revision"] or 0)

    def all_pages(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Every row of a list."""
        items: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        while True:
            page = self.rest.get(path, limit=1000, **query, **after)
            items += page["items"]
            if page["next"] is None:
                return items
            after = {"after": page["next"]}

    def contents(self) -> dict[int, dict[str, Any]]:
        """The configuration at each revision, all of which add up to their hashes and none of which is missing."""
        numbers = sorted(item["number"] for item in self.all_pages("/revisions"))
        assert numbers == list(range(1, len(numbers) + 1))
        found: dict[int, dict[str, Any]] = {}
        content: dict[str, Any] = {}
        for number in numbers:
            shown = self.rest.get(f"/revisions/{number}")
            content = found[number] = merge_patch(content, shown["patch"])
            assert content_hash(content) == shown["hash"], f"revision {number} is not whole"
        return found


@contextmanager
def live_site(directory: Path, **settings: str) -> Iterator[Live]:
    """A copy of a new site, or one in the database that `settings` name."""
    with ExitStack() as stack:
        named = settings.get("HEADWORKS_DATABASE_URL")
        if named:
            live = Live(directory, settings, None)
        else:
            new = _new_site(on_sqlite=named == "" or not os.environ.get("HEADWORKS_DATABASE_URL"))
            shutil.copytree(new.folder.name, directory / "data")
            if new.database.name:
                database = stack.enter_context(database_of_its_own(new.database.name))
                settings = {**database.settings, **settings}
            live = Live(directory, settings, new.token)
        live.start()
        stack.callback(live.stop)
        yield live


class LiveTarget:
    """One enrolled target."""

    def __init__(self, live: Live, token: str) -> None:
        self.live, self.token = live, token
        self.rest = Rest(live.address, token, REASON)

    def stream(self, have: int | str = 0, **headers: str) -> LiveStream:
        """`have`: a number, or one with the rest of the query."""
        return LiveStream(self.live.port, self.token, have, headers)

    def ack(self, held: LastKnownGood) -> Any:
        body = {"revision": held.revision, "hash": held.hash, "applied_at": int(time.time() * 1000)}
        return self.rest.post("/config/ack", body)


class LiveStream:
    """An open config stream, read by a thread. `status` is the answer's; events queue up in `events`."""

    def __init__(self, port: int, token: str, have: int | str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        self._connection.request(
            "GET", f"/api/v1/config/stream?have={have}", headers={"Authorization": f"Bearer {token}", **headers}
        )
        self._answer = self._connection.getresponse()
        self.status, self.headers = self._answer.status, self._answer.headers
        self.events: queue.Queue[SnapshotEvent | PatchEvent | None] = queue.Queue()
        self.live_gateways = 0
        self._held: LastKnownGood | None = None
        self.body: dict[str, Any] = {}
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()
        else:
            self.body = msgspec.json.decode(self._answer.read())

    @property
    def held(self) -> LastKnownGood:
        """The slice that has come so far."""
        assert self._held is not None, "nothing has come yet"
        return self._held

    def hold(self, held: LastKnownGood) -> None:
        """Start from what an earlier stream left."""
        self._held = held

    def next(self, timeout_s: float = PATIENCE_SECONDS) -> SnapshotEvent | PatchEvent | None:
        """The next slice, verified as a target does; None at the stream's end."""
        event = self.events.get(timeout=timeout_s)
        if event is not None:
            self._held = next_slice(self._held, event)
        return event

    def until(self, revision: int) -> LastKnownGood:
        """Read on until a revision has come."""
        while self._held is None or self._held.revision < revision:
            assert self.next() is not None, "the stream ended"
        return self._held

    def close(self) -> None:
        # Not `close` of the answer, which would wait for the thread that reads it.
        with suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        parser = SseParser(64 << 20)
        try:
            while chunk := self._answer.read1(65536):
                for event in parser.feed(chunk):
                    message = decode_sse(event.name, event.data)
                    if isinstance(message, PeersEvent):
                        self.live_gateways = message.live_gateways
                    elif message is not None:
                        self.events.put(message)
        except (OSError, ValueError, http.client.HTTPException):
            pass
        self.events.put(None)
