"""A real web process: how fast a fault reaches the gateways, and SIGKILLs of it while an agent posts events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from controlplane.rest_client import RestError
from tests.controlplane.alerts.conftest import event
from tests.controlplane.configs.live import Live, LiveTarget, live_site
from wire.messages import SnapshotEvent

RECEIVERS = ("oncall", "archive")
# From before the body is read until after the answer is sent: a kill at each of these moments after the post began.
KILLED_AFTER_SECONDS = (0.0, 0.01, 0.02, 0.03, 0.045, 0.07)


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
    agents = make_fleet(site, len(KILLED_AFTER_SECONDS))
    bodies = [[event(node=f"n{number}") for _ in range(3)] for number in range(1, len(agents) + 1)]
    for agent, body, seconds in zip(agents, bodies, KILLED_AFTER_SECONDS, strict=True):
        poster = threading.Thread(target=post_until_taken, args=(agent, body))
        poster.start()
        time.sleep(seconds)  # the moment of the kill
        site.kill()
        site.start()
        poster.join()

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


def post_until_taken(agent: LiveTarget, body: list[dict[str, Any]]) -> None:
    """As an agent's spool: a body goes away only once it was answered."""
    while True:
        try:
            assert agent.rest.post("/events", body)["taken"] == [sent["id"] for sent in body]
            return
        except (OSError, HTTPException, RestError):
            time.sleep(0.02)


def revisions_that_cordon(site: Live, node: str) -> list[int]:
    numbers = range(1, site.revision() + 1)
    patches = {number: site.rest.get(f"/revisions/{number}")["patch"] for number in numbers}
    return [number for number, patch in patches.items() if patch.get("nodes", {}).get(node, {}).get("cordoned")]
