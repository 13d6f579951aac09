"""A stage with real processes: streams, workers of which one is killed, and two people who end it at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import command
from controlplane.processes import workers
from controlplane.rest_client import RestError
from tests.controlplane.configs.live import Live, LiveStream, live_site
from tests.services import Process, wait_for

pytestmark = pytest.mark.timeout(240)
SETTINGS = {"HEADWORKS_STAGE_LOOK_SECONDS": "1", "HEADWORKS_PUBLISH_QUIET_MS": "0"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_site(tmp_path_factory.mktemp("staged"), **SETTINGS) as live:
        live.rest.post("/tenants", {"name": "acme"})
        yield live


class Gateway:
    """A gateway that runs whatever it is sent, and says so."""

    def __init__(self, live: Live, name: str) -> None:
        self.target = live.enrol("gateway", name)
        self.stream: LiveStream = self.target.stream()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self.stream.next(timeout_s=240) is not None:
            self.target.ack(self.stream.held)

    def runs(self, limit: int) -> bool:
        return bool(self.limit() == limit)

    def limit(self) -> Any:
        held = self.stream._held
        return held and held.content["tenants"].get("acme", {}).get("tpm_limit")


@contextmanager
def working(live: Live, directory: Path) -> Iterator[list[Process]]:
    """The processes that do scheduled work."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Process(command(name), log=directory / f"{name}.log", environment=live.environment))
            for name in workers(os.environ.get("HEADWORKS_REDIS_URL", ""))
        ]


def begin(live: Live, target: str, limit: int, **fields: Any) -> str:
    body = {"patch": {"tenants": {"acme": {"tpm_limit": limit}}}, "targets": [f"gateway/{target}"], **fields}
    return f"/config/stages/{live.rest.post('/config/stages', body)['item']['id']}"


def state(live: Live, stage: str) -> str:
    return str(live.rest.get(stage)["state"])


def test_a_killed_worker_is_followed_by_another_and_a_breach_takes_it_back_within_seconds(
    site: Live, tmp_path: Path
) -> None:
    site.rest.patch("/tenants/acme", {"tpm_limit": 5})
    one, other = Gateway(site, "gw-1"), Gateway(site, "gw-2")
    wait_for(lambda: other.limit() == 5, 20, "the first slice")
    stage = begin(site, "gw-1", 7, watch={"expression": "vector(1)", "for_seconds": 6}, then="promote")
    wait_for(lambda: one.limit() == 7, 20, "the staged slice")
    assert other.limit() == 5
    with working(site, tmp_path) as processes:
        wait_for(lambda: site.rest.get(stage)["said"] == "healthy", 30, "a look")
        for process in processes:
            process.kill()
    assert state(site, stage) == "running"
    with working(site, tmp_path):
        wait_for(lambda: state(site, stage) == "promoted", 40, "the promotion")
        wait_for(lambda: other.limit() == 7, 5, "the change at all")
        breach = int(time.time()) + 3
        expression = f"vector(time()) < {breach}"
        stage = begin(site, "gw-1", 9, watch={"expression": expression, "for_seconds": 600}, then="promote")
        wait_for(lambda: state(site, stage) == "taken_back", 20, "the end of the stage")
        wait_for(lambda: one.limit() == 7, 5, "what all have")
    assert site.rest.get(stage)["said"] == f"not healthy: {expression}"
    assert other.limit() == 7
    site.contents()


def test_of_two_who_end_it_at_once_one_does(site: Live) -> None:
    gateways = [Gateway(site, "gw-3"), Gateway(site, "gw-4")]
    for limit in (20, 21, 22):
        before = site.rest.get("/tenants/acme")["tpm_limit"]
        stage = begin(site, "gw-3", limit)
        outcomes: dict[str, Any] = {}
        barrier = threading.Barrier(2)

        def end(act: str, stage: str = stage, barrier: Any = barrier, outcomes: dict[str, Any] = outcomes) -> None:
            barrier.wait()
            try:
                outcomes[act] = site.rest.post(f"{stage}/{act}", {})["item"]["state"]
            except RestError as error:
                outcomes[act] = error.status

        acts = [threading.Thread(target=end, args=(act,)) for act in ("promote", "take-back")]
        for thread in acts:
            thread.start()
        for thread in acts:
            thread.join()
        assert sorted(map(str, outcomes.values())) in (["409", "promoted"], ["409", "taken_back"])
        assert state(site, stage) in outcomes.values()
        expected = limit if state(site, stage) == "promoted" else before
        assert site.rest.get("/tenants/acme")["tpm_limit"] == expected
        for gateway in gateways:
            wait_for(partial(gateway.runs, expected), 20, "one limit at all")
    site.contents()
