"""A real web process on a free port, with its own data, people of each role, and targets that join it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache, cached_property
from pathlib import Path

from controlplane.rest_client import Rest
from tests.services import Process, free_port
from wire.messages import TargetKind
from wire.problems import Problem
from wire.snapshot import GatewaySnapshot, Snapshot
from wire.snapshot_checks import SnapshotRefused
from wire.target import TargetClient, enrol

PASSWORD = "correct horse battery"
# Commands of `headworks` in one process, which takes longer to start than most of them.
_SET_UP = """
import io
import sys

from controlplane.cli import main

_, password, *people = sys.argv
if main(["migrate"]):
    raise SystemExit("failed: migrate")
for name, role in zip(people[::2], people[1::2], strict=True):
    sys.stdin = io.StringIO(f"{password}\\n")
    if main(["create-user", name, "--role", role, "--password-stdin"]):
        raise SystemExit(f"failed: create-user {name}")
"""
# Name → role.
PEOPLE = {"vera": "viewer", "omar": "operator", "ada": "admin"}


class Site:
    """`url` is the address; PEOPLE log in with PASSWORD."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.environment = {
            "HEADWORKS_DATA_DIR": str(folder / "data"),
            "HEADWORKS_PORT": url.rpartition(":")[2],
            "HEADWORKS_DATABASE_URL": "",
            "HEADWORKS_REDIS_URL": "",
            # Rules are a test's own.
            "HEADWORKS_RULE_PACK": "off",
            # Nodes here (`JoinedTarget`) follow their streams and report nothing: silent, and not lost.
            "HEADWORKS_TARGET_SILENT_SECONDS": "3600",
        }

    process: Process

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the web process, again too, and wait until it answers; end the last one with the block."""
        with contextlib.ExitStack() as stack:
            self._processes = stack
            self.start()
            yield

    def start(self) -> None:
        process = Process(headworks("web"), log=self.folder / "web.log", environment=self.environment)
        self.process = self._processes.enter_context(process)
        process.wait_for_http(f"{self.url}/log-in/")

    def command(self, *words: str, stdin: str = "") -> str:
        """Run a `headworks` command on this site's data and return what it prints."""
        done = subprocess.run(
            headworks(*words),
            input=stdin,
            env={**os.environ, **self.environment},
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        return done.stdout.strip()

    @cached_property
    def rest(self) -> Rest:
        """An admin's script."""
        token = self.command("create-token", "ada", "set-up", "--role", "admin")
        return Rest(self.url, token, "first tenants of this fleet")


def headworks(*words: str) -> list[str]:
    return [sys.executable, "-m", "controlplane.cli", *words]


@contextlib.contextmanager
def running_site(folder: Path, fill: Callable[[Site], None] | None = None) -> Iterator[Site]:
    """A site with PEOPLE in `folder`; its web process runs until the block ends. `fill` is called before it does."""
    site = Site(f"http://127.0.0.1:{free_port()}", folder)
    shutil.copytree(_first_data(), folder / "data", dirs_exist_ok=True)
    if fill:
        fill(site)
    with site.running():
        yield site


@cache
def _first_data() -> Path:
    """The data of a site that has its PEOPLE and was never started: made once, since it takes seconds."""
    folder = tempfile.TemporaryDirectory(prefix="headworks-site-")
    atexit.register(folder.cleanup)
    site = Site(f"http://127.0.0.1:{free_port()}", Path(folder.name))
    people = [word for name, role in PEOPLE.items() for word in (name, role)]
    argv = [sys.executable, "-c", _SET_UP, PASSWORD, *people]
    subprocess.run(argv, env={**os.environ, **site.environment}, stdout=subprocess.DEVNULL, check=True)
    return site.folder / "data"


class JoinedTarget:
    """A target's real client, in a thread of its own. It refuses a snapshot that holds the tenant `refuses`."""

    def __init__(self, site: Site, kind: TargetKind, name: str, refuses: str = "") -> None:
        self._refuses = refuses
        join_token = site.rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
        self._joined: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(site, kind, name, join_token)), daemon=True
        )
        self._thread.start()
        self._joined.result(timeout=20)

    def stop(self) -> None:
        loop, task = self._joined.result()
        loop.call_soon_threadsafe(task.cancel)
        self._thread.join(10)

    async def _live(self, site: Site, kind: TargetKind, name: str, join_token: str) -> None:
        state_dir = site.folder / "targets" / f"{kind}-{name}"
        try:
            await enrol(
                control_url=site.url, join_token=join_token, kind=kind, name=name, version="0.1.0", state_dir=state_dir
            )
        except Exception as error:
            self._joined.set_exception(error)
            return
        client = TargetClient(control_url=site.url, state_dir=state_dir, on_snapshot=self._apply)
        task = asyncio.create_task(client.run())
        self._joined.set_result((asyncio.get_running_loop(), task))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _apply(self, snapshot: Snapshot, revision: int) -> None:
        if isinstance(snapshot, GatewaySnapshot) and self._refuses in snapshot.tenants:
            path = f"/tenants/{self._refuses}/models"
            raise SnapshotRefused([Problem(path, "reference", "this gateway cannot load the tokenizer of its model")])
