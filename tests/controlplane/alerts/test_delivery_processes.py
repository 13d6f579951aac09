"""From a node's event to the webhook through real processes, and what is left of it when they are killed."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.processes import workers
from tests.controlplane.alerts.conftest import event
from tests.controlplane.alerts.receiving import ALLOWED, HANG, OnCall, on_call
from tests.controlplane.configs.live import Live, live_site
from tests.services import Process, wait_for

PATIENCE_SECONDS = 30
_numbers = itertools.count()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with live_site(tmp_path, HEADWORKS_WEBHOOK_ALLOWED_NETWORKS=ALLOWED, HEADWORKS_WEBHOOK_TIMEOUT_SECONDS="1") as site:
        site.rest.post("/nodes", {"name": "n1"})
        yield site


@contextmanager
def background(live: Live, commands: tuple[str, ...]) -> Iterator[list[Process]]:
    """Processes of `headworks`, each command one."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Process(
                    [sys.executable, "-m", "controlplane.cli", command],
                    log=live.directory / f"{command}-{next(_numbers)}.log",
                    environment=live.environment,
                )
            )
            for command in commands
        ]


def all_workers() -> tuple[str, ...]:
    return workers(os.environ.get("HEADWORKS_REDIS_URL", ""))


def fault(gpu: int) -> dict[str, Any]:
    return event(subject=f"GPU-{gpu}")


def add_receiver(live: Live, name: str, receiver: OnCall) -> None:
    live.rest.post("/receivers", {"name": name, "url": receiver.url})


def came(receiver: OnCall, count: int) -> bool:
    return len(receiver.got) == count


def states(live: Live) -> Counter[str]:
    return Counter(row["state"] for row in live.rest.get("/deliveries", limit=1000)["items"])


def test_an_event_reaches_the_receiver_as_soon_as_it_is_committed(live, capsys):
    agent = live.enrol("node", "n1")
    with on_call() as receiver, background(live, all_workers()):
        add_receiver(live, "oncall", receiver)
        seconds = []
        for gpu in range(5):
            began = time.monotonic()
            agent.rest.post("/events", [fault(gpu)])
            wait_for(partial(came, receiver, gpu + 1), PATIENCE_SECONDS, "the webhook", 0.01)
            seconds.append(time.monotonic() - began)
        wait_for(lambda: states(live) == {"delivered": 5}, PATIENCE_SECONDS, "every outcome in its row")
    with capsys.disabled():
        # The first waits for the worker to start.
        print(f"\nevent to webhook, seconds: {', '.join(f'{one:.2f}' for one in seconds[1:])}")
    (incident,) = live.rest.get("/incidents", limit=1)["items"]
    assert "delivered" in {entry["kind"] for entry in live.rest.get(f"/incidents/{incident['id']}")["entries"]}


def test_a_rule_that_fires_reaches_the_receiver_and_so_does_its_end(live):
    with on_call() as receiver, background(live, all_workers()):
        add_receiver(live, "oncall", receiver)
        live.rest.post("/rules", {"name": "Always", "expr": "vector(1)"})
        wait_for(partial(came, receiver, 1), PATIENCE_SECONDS, "the webhook")
        live.rest.patch("/rules/Always", {"enabled": False})
        wait_for(partial(came, receiver, 2), PATIENCE_SECONDS, "the webhook of its end")
    assert [got.document["status"] for got in receiver.got] == ["firing", "resolved"]
    assert receiver.got[0].document["commonLabels"] == {"alertname": "Always", "severity": "warning"}


@pytest.mark.timeout(180)
def test_a_worker_that_is_killed_while_it_sends_loses_nothing(live):
    agent = live.enrol("node", "n1")
    with on_call(HANG) as receiver:
        add_receiver(live, "oncall", receiver)
        with background(live, all_workers()) as (worker, *_):
            agent.rest.post("/events", [fault(0)])
            wait_for(lambda: receiver.got, PATIENCE_SECONDS, "the attempt that hangs")
            worker.kill()
            agent.rest.post("/events", [fault(1)])
        receiver.release.set()
        with background(live, all_workers()):
            wait_for(lambda: states(live) == {"delivered": 2}, PATIENCE_SECONDS, "both messages delivered")
    # What was under way came twice, under one id; what was not, once.
    assert sorted(Counter(got.delivery for got in receiver.got).values()) == [1, 2]


@pytest.mark.timeout(240)
def test_workers_that_are_killed_at_any_moment_lose_nothing_and_send_little_twice(live):
    agent = live.enrol("node", "n1")
    kills, sent = 2, itertools.count()
    with on_call() as receiver:
        add_receiver(live, "oncall", receiver)
        for _ in range(kills):
            before = len(receiver.got)

            def grown(before: int = before) -> bool:
                agent.rest.post("/events", [fault(next(sent))])
                return len(receiver.got) > before

            with background(live, all_workers()) as (worker, *_):
                worker.wait_until(grown, "a message of this round")
                worker.kill()
        with background(live, all_workers()):
            count = next(sent)
            wait_for(lambda: states(live) == {"delivered": count}, PATIENCE_SECONDS, "every message delivered")
    times = Counter(got.delivery for got in receiver.got)
    assert len(times) == count
    # Only the attempt that a kill cut off may have come twice, and one that was answered too late.
    late = [
        said["reason"]
        for delivery, came in times.items()
        if came > 1
        for said in live.rest.get(f"/deliveries/{delivery}/attempts")["items"]
        if said["reason"] != "taken"
    ]
    assert sum(times.values()) - count <= kills + len(late), late


@pytest.mark.timeout(180)
def test_two_workers_send_each_message_once(live):
    agent = live.enrol("node", "n1")
    with ExitStack() as stack:
        receivers = [stack.enter_context(on_call()) for _ in range(3)]
        for number, receiver in enumerate(receivers):
            add_receiver(live, f"r{number}", receiver)
        stack.enter_context(background(live, ("worker", *all_workers())))
        for gpu in range(20):
            agent.rest.post("/events", [fault(gpu)])
        wait_for(lambda: states(live) == {"delivered": 60}, PATIENCE_SECONDS, "every message delivered")
    times = Counter(got.delivery for receiver in receivers for got in receiver.got)
    assert len(times) == 60
    assert set(times.values()) == {1}
