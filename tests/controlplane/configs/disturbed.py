"""A site of two web processes, a worker and five gateways, a script that keeps changing quotas, and what must hold
once something was killed meanwhile.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.support.control_plane import following
from controlplane.processes import workers
from tests.controlplane.configs.live import Live, live_site
from tests.services import Process, wait_for

GATEWAYS = 5
TENANTS = 5
WRITE_EVERY_SECONDS = 0.05
ANSWER_SECONDS = 10.0
CONVERGE_SECONDS = 30.0
# A worker's heartbeats, and the next task of the beat.
PULSE_SECONDS = 40.0


class Beside:
    """A worker or the beat, which shows that it works by touching a file."""

    def __init__(self, name: str, directory: Path, environment: dict[str, str]) -> None:
        self._pulse = directory / f"{name}.pulse"
        self.process = Process(
            [sys.executable, "-m", "controlplane.cli", name],
            log=directory / f"{name}.log",
            environment={**environment, "HEADWORKS_PULSE_FILE": str(self._pulse)},
        )

    def wait_until_it_works(self) -> None:
        self._pulse.unlink(missing_ok=True)
        self.process.wait_until(self._pulse.exists, "a heartbeat", PULSE_SECONDS)


class Site(NamedTuple):
    """Web processes that share one database, those that run beside them, and the gateways' tokens."""

    webs: tuple[Live, Live]
    beside: list[Beside]
    tokens: list[str]

    def gateways(self) -> AbstractContextManager[Callable[[], dict[str, Any]]]:
        """They follow the configuration within the block; calling what it gives ends them and tells what they hold."""
        return following([web.address for web in self.webs], self.tokens)


@contextmanager
def running_site(directory: Path, **settings: str) -> Iterator[Site]:
    # Every write is published by itself, so that whatever breaks does so while something is.
    with live_site(directory, HEADWORKS_PUBLISH_QUIET_MS="0", **settings) as first, ExitStack() as stack:
        second = first.neighbour()
        second.start()
        stack.callback(second.stop)
        names = workers({**os.environ, **first.environment}.get("HEADWORKS_REDIS_URL", ""))
        beside = [Beside(name, directory, first.environment) for name in names]
        for each in beside:
            stack.enter_context(each.process)
        tokens = [first.enrol("gateway", f"gw-{number}").token for number in range(GATEWAYS)]
        for number in range(TENANTS):
            first.rest.post("/tenants", {"name": f"t-{number}"})
        for each in beside:
            each.wait_until_it_works()
        yield Site((first, second), beside, tokens)


class Written(NamedTuple):
    """A write that was answered: its reason is its alone."""

    reason: str
    tenant: str
    limit: int
    change_id: str


class Writer:
    """An operator's script: within the block a quota changes every 50 ms, each time to a higher one.

    What gets no answer is sent again with its key, to the other web process, until it has one.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._name = uuid.uuid4().hex
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self.written: list[Written] = []
        self.unanswered = 0
        self.refused: list[str] = []

    def __enter__(self) -> Writer:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(ANSWER_SECONDS + CONVERGE_SECONDS)
        assert not self._thread.is_alive(), "the last write was never answered"

    def wait_for_more(self, writes: int = 10) -> None:
        goal = len(self.written) + writes
        wait_for(lambda: self.refused or len(self.written) >= goal, CONVERGE_SECONDS, f"{writes} more writes")

    def _write_all(self) -> None:
        for number in itertools.count(1):
            if self._ending.wait(WRITE_EVERY_SECONDS) or self.refused:
                return
            self._write(f"{self._name} {number:06}.", f"t-{number % TENANTS}", number)

    def _write(self, reason: str, tenant: str, limit: int) -> None:
        for turn in itertools.count(limit):
            web = self._site.webs[turn % len(self._site.webs)]
            try:
                answer = self._send(web, reason, tenant, limit)
            except urllib.error.HTTPError as error:
                with error:
                    text = error.read().decode()
                if error.code != 503:
                    self.refused.append(f"{error.code} {text}")
                    return
            except (urllib.error.URLError, OSError):
                pass
            else:
                self.written.append(Written(reason, tenant, limit, answer["change_id"]))
                return
            self.unanswered += 1
            self._ending.wait(WRITE_EVERY_SECONDS)

    def _send(self, web: Live, reason: str, tenant: str, limit: int) -> Any:
        request = urllib.request.Request(
            f"{web.address}/api/v1/tenants/{tenant}?reason={quote(reason)}",
            json.dumps({"tpm_limit": limit}).encode(),
            {
                "Authorization": f"Bearer {web.rest.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": quote(reason),
            },
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read())


def assert_all_arrived(site: Site, writer: Writer, end_targets: Callable[[], dict[str, Any]]) -> None:
    """Nothing that was answered is missing or done twice, no revision is half, and all gateways hold the last one."""
    assert not writer.refused
    for each in site.beside:
        each.wait_until_it_works()
    web = site.webs[0]

    def converged() -> bool:
        return bool(web.rest.get("/config/convergence")["applied"] == GATEWAYS)

    def published() -> bool:
        return all(entry["revision"] is not None for entry in entries_of(web, writer))

    wait_for(published, CONVERGE_SECONDS, "every write in a revision")
    wait_for(converged, CONVERGE_SECONDS, "every gateway on the newest revision")
    entries = entries_of(web, writer)
    assert [(entry["reason"], entry["key"], entry["change_id"]) for entry in entries] == [
        (written.reason, written.tenant, written.change_id) for written in writer.written
    ]
    contents = web.contents()
    assert_each_revision_holds_its_writes(contents, entries)
    held = end_targets()["held"]
    assert len(held) == GATEWAYS
    assert len(set(held)) == 1


def entries_of(web: Live, writer: Writer) -> list[dict[str, Any]]:
    """The audit entries of its writes, oldest first."""
    return web.all_pages("/audit", reason=writer._name)[::-1]


def assert_each_revision_holds_its_writes(contents: dict[int, dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    """At each revision every tenant has the limit of the last write that says it is in it, or in one before."""
    limits: dict[str, int] = {}
    by_revision = {number: [entry for entry in entries if entry["revision"] == number] for number in contents}
    for number in sorted(contents):
        limits.update((entry["key"], entry["after"]["tpm_limit"]) for entry in by_revision[number])
        found = {tenant: contents[number]["tenants"][tenant]["tpm_limit"] for tenant in limits}
        assert found == limits, f"revision {number}"
