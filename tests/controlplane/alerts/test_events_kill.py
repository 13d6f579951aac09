"""A real web process: how fast a fault reaches the gateways, and SIGKILLs of it while an agent posts events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from controlplane.rest_client import RestError
from tests.controlplane.alerts.conftest import event
from tests.controlplane.configs.live import Live, LiveTarget, live_site
from tests.services import wait_for
from wire.messages import SnapshotEvent

RECEIVERS = ("oncall", "archive")
NODES, POSTERS, KILLS = 20, 4, 4
PATIENCE_SECONDS = 30


def make_fleet(live: Live, nodes: int) -> list[LiveTarget]:
    """Nodes n1, n2 … in one pool, a policy that is on, two receivers that nothing delivers to. The nodes' agents."""
    live.rest.post("/models", {"name": "org/m-1", "max_context_tokens": 8192})
    live.rest.post("/pools", {"name": "short", "model": "org/m-1"})
    agents = [live.enrol("node", f"n{number}") for number in range(1, nodes + 1)]
    for number in range(1, nodes + 1):
        engine = {"name": f"e{number}", "pool": "short", "served_model": "m", "node": f"n{number}"}
        live.rest.post("/engines", {**engine, "url": f"http://10.0.0.{number}:8000"})
    live.rest.patch("/cordon-policy", {"enabled": True, "max_nodes_permille": 1000})
    for name in RECEIVERS:
        live.rest.post("/receivers", {"name": name, "url": "http://127.0.0.1:9/hook"})
    return agents


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Live]:
    with live_site(tmp_path, HEADWORKS_WEBHOOK_ALLOWED_NETWORKS="127.0.0.0/8") as live:
        yield live


def test_the_cordon_is_at_the_gateways_when_the_incident_names_its_revision(site: Live) -> None:
    agent, _ = make_fleet(site, 2)
    stream = site.enrol("gateway", "gw").stream()
    assert isinstance(stream.next(), SnapshotEvent)
    agent.rest.post("/events", [event()])
    (incident,) = site.rest.get("/incidents")["items"]
    entry = site.rest.get(f"/incidents/{incident['id']}")["entries"][-1]
    held = stream.until(entry["details"]["revision"])
    assert {name: engine["cordoned"] for name, engine in held.content["engines"].items()} == {"e1": True, "e2": False}
    stream.close()


@pytest.mark.timeout(240)
def test_kills_while_faults_are_posted_lose_none_and_double_nothing(site: Live) -> None:
    """Several agents post all the time, so that each kill meets some of them at any stage of it."""
    agents = make_fleet(site, NODES)
    bodies = [[event(node=f"n{number}") for _ in range(3)] for number in range(1, NODES + 1)]
    taken: list[int] = []
    with ThreadPoolExecutor(POSTERS) as posters:
        posts = [posters.submit(post_until_taken, *one, taken) for one in zip(agents, bodies, strict=True)]
        for enough in range(1, NODES, NODES // KILLS):
            wait_for(partial(has_grown, taken, enough), PATIENCE_SECONDS, "bodies to be taken", 0.001)
            site.kill()
            site.start()
    # The number of times that each was posted before it was taken.
    assert sum(post.result() for post in posts) - NODES >= KILLS

    for number, body in enumerate(bodies, start=1):
        told = site.rest.get("/events", node=f"n{number}", limit=1000)["items"]
        assert sorted(item["id"] for item in told) == sorted(sent["id"] for sent in body)
        (incident,) = site.rest.get("/incidents", node=f"n{number}")["items"]
        whole = site.rest.get(f"/incidents/{incident['id']}")
        kinds = [entry["kind"] for entry in whole["entries"]]
        assert sorted(kinds) == ["cordoned", "event", "event", "started"]
        assert sorted(delivery["receiver"] for delivery in whole["deliveries"]) == sorted(RECEIVERS)
        (named,) = [entry["details"]["revision"] for entry in whole["entries"] if entry["kind"] == "cordoned"]
        assert revisions_that_cordon(site, f"n{number}") == [named]


def has_grown(taken: list[int], enough: int) -> bool:
    return len(taken) >= enough


def post_until_taken(agent: LiveTarget, body: list[dict[str, Any]], taken: list[int]) -> int:
    """As an agent's spool: a body goes away only once it was answered. How often it was posted."""
    posted = itertools.count(1)

    def post() -> int:
        number = next(posted)
        try:
            assert agent.rest.post("/events", body)["taken"] == [sent["id"] for sent in body]
        except (OSError, HTTPException, RestError):
            return 0
        return number

    number = wait_for(post, PATIENCE_SECONDS, "the control plane to take the body")
    taken.append(number)
    return number


def revisions_that_cordon(site: Live, node: str) -> list[int]:
    numbers = range(1, site.revision() + 1)
    patches = {number: site.rest.get(f"/revisions/{number}")["patch"] for number in numbers}
    return [number for number, patch in patches.items() if patch.get("nodes", {}).get(node, {}).get("cordoned")]
