"""A rollout with everything real: a worker, a gateway, agents, and simulated engines that they start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench.support import engine_control
from bench.support.rolling_fleet import RollingFleet, rolling_fleet

OPEN = ("running", "returning")


def ended(fleet: RollingFleet, body: dict[str, Any]) -> dict[str, Any]:
    path = f"/rollouts/{fleet.rest.post('/rollouts', body)['item']['id']}"
    deadline = time.monotonic() + 90
    while (shown := fleet.rest.get(path))["state"] in OPEN:
        assert time.monotonic() < deadline, shown
        time.sleep(0.1)
    return dict(shown)


@pytest.mark.timeout(240)
@pytest.mark.own_servers
def test_a_new_engine_is_started_warmed_up_and_given_the_traffic_and_the_old_one_is_stopped(tmp_path: Path) -> None:
    with rolling_fleet(tmp_path, {"old": 1, "new": 1}) as fleet:
        engine_control.stop(fleet.control["new-0"])
        # So long the old pool's traffic is left alone before it moves.
        fleet.rest.patch("/pools/old", {"queue_ttl_ms": 1000})
        body = {
            "kind": "red_black",
            "pool": "old",
            "new_pool": "new",
            "steps": [{"share_permille": 1000, "for_seconds": 1}],
            # Nobody asks anything here.
            "conditions": [],
            "keep_warm_seconds": 0,
        }
        shown = ended(fleet, {**body, "warm_up": {"prompts": ["Hello"]}})
        assert shown["state"] == "done", shown
        said = {step["kind"]: step["said"] for step in shown["steps"]}
        assert "time to first token" in said["warm_up"]
        assert fleet.rest.get("/routes/all")["pools"] == {"new": 1000}
        assert (fleet.is_up("new-0"), fleet.is_up("old-0")) == (True, False)
        held_out = {engine["name"]: engine["held_out_by"] for engine in fleet.rest.get("/engines")["items"]}
        assert held_out == {"old-0": f"rollout {shown['id']}", "new-0": None}
