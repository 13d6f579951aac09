"""Two real web processes: what one writes, the targets of the other hear of, and how soon."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from controlplane.rest_client import RestError
from tests.controlplane.configs.live import Live, LiveTarget, live_site
from tests.servers import own_postgres, own_redis
from tests.services import wait_for

# A busy machine takes its time to start two processes.
pytestmark = pytest.mark.timeout(240)
ON_ONE_MACHINE = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": "", "HEADWORKS_PUBLISH_QUIET_MS": "0"}
POLL_SECONDS = 0.2
# The longest that can be set: what comes sooner, in a run of several, was not found by polling.
SELDOM_SECONDS = 10.0
SOON_SECONDS = 3.0


class Gateway:
    def __init__(self, target: LiveTarget) -> None:
        self._target, self._stream = target, target.stream()

    def until(self, limit: int) -> float:
        """Acknowledge what comes until it has this limit; when that came."""
        while self._stream.next() is not None:
            came = time.monotonic()
            self._target.ack(self._stream.held)
            if self._stream.held.content["tenants"].get("acme", {}).get("tpm_limit", 0) >= limit:
                return came
        raise AssertionError("the stream ended")


class Pair:
    """A process that writes, one that hears of it, and a gateway's stream at each. A write is a limit never had yet."""

    def __init__(self, writes: Live, hears: Live) -> None:
        self.writes, self.hears = writes, hears
        self.near = Gateway(writes.enrol("gateway", "gw-near"))
        self.far = Gateway(LiveTarget(hears, writes.enrol("gateway", "gw-far").token))
        writes.rest.post("/tenants", {"name": "acme"})
        self._limit = 0

    def write(self) -> int:
        self._limit += 1
        wait_for(self._written, 20, "an answer")
        return self._limit

    def _written(self) -> bool:
        try:
            self.writes.rest.patch("/tenants/acme", {"tpm_limit": self._limit})
        except RestError as error:
            # Of a connection to a database that was killed: it says to try again.
            if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False
        return True

    def far_after_near(self) -> float:
        """Seconds from when the writer's own gateway has a new limit to when the other's has it."""
        limit = self.write()
        near = self.near.until(limit)
        return self.far.until(limit) - near

    def said(self, words: str) -> list[int]:
        """How often each process logged it."""
        logs = (live.process.log for live in (self.writes, self.hears) if live.process is not None)
        return [log.read_text().count(words) for log in logs]


@contextmanager
def pair(directory: Path, **settings: str) -> Iterator[Pair]:
    with live_site(directory, **settings) as writes:
        hears = writes.neighbour()
        hears.start()
        try:
            yield Pair(writes, hears)
        finally:
            hears.stop()


def test_what_no_message_told_of_is_found_by_the_next_poll(tmp_path: Path) -> None:
    with pair(tmp_path, **ON_ONE_MACHINE, HEADWORKS_POLL_MS=str(round(POLL_SECONDS * 1000))) as two:
        # Half of them would be late by more than half of it, and a busy machine takes its time.
        assert statistics.median(two.far_after_near() for _ in range(9)) < 2 * POLL_SECONDS


def test_a_process_that_is_killed_right_after_its_answer_leaves_its_write_to_the_other(tmp_path: Path) -> None:
    settings = {**ON_ONE_MACHINE, "HEADWORKS_PUBLISH_QUIET_MS": "1000"}
    with pair(tmp_path, **settings) as two:
        limit = two.write()
        two.writes.kill()
        two.far.until(limit)


@pytest.mark.own_servers
@pytest.mark.parametrize("service", ["redis", "postgresql"])
def test_they_wake_each_other_also_once_what_carries_it_was_killed_and_is_back(tmp_path: Path, service: str) -> None:
    with own_redis() if service == "redis" else own_postgres() as server:
        carried = {
            "redis": {"HEADWORKS_REDIS_URL": f"{server.url}/0"},
            "postgresql": {"HEADWORKS_DATABASE_URL": server.url},
        }
        seldom = {"HEADWORKS_POLL_MS": str(round(SELDOM_SECONDS * 1000))}
        with pair(tmp_path, **{**ON_ONE_MACHINE, **seldom, **carried[service]}) as two:
            assert woken(two)
            server.kill()
            wait_for(lambda: min(two.said("by polling")) == 1, 20, "both to notice")
            if service == "redis":
                two.far.until(two.write())
            server.start()
            wait_for(lambda: min(two.said("wake each other again")) == 1, 30, "both to find it again")
            assert woken(two)


def woken(two: Pair) -> bool:
    return all(two.far_after_near() < SOON_SECONDS for _ in range(3))
