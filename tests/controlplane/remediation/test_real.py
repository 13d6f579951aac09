"""A repair with everything real: a worker, a gateway, an agent that resets a simulated GPU, and an engine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.support.rolling_fleet import RollingFleet, rolling_fleet
from simulator.gpu.fault import throw_xid
from simulator.gpu.state import StateFile, healthy_machine
from tests.gpu_agent.acts.works import script

OPEN = ("held", "quarantined", "draining", "drained", "remediating", "verifying")


def repaired(fleet: RollingFleet) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while True:
        found = fleet.rest.get("/remediations")["items"]
        if found and found[0]["state"] not in OPEN:
            return dict(found[0])
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


@pytest.mark.timeout(240)
@pytest.mark.own_servers
def test_a_gpu_with_an_uncontained_ecc_error_is_reset_and_its_node_is_back_in_service(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "gpus.json")
    state.create(healthy_machine(2))
    resets = tmp_path / "resets"
    reset = script(
        tmp_path / "reset",
        f'echo "$1" >>{resets}; {sys.executable} -m simulator.gpu.fault {state.path} --gpu 0 recover',
    )
    policy = {"allow": ["reset_gpu"], "reset_command": [str(reset), "{gpu}"]}
    gpus = {
        "HEADWORKS_AGENT_GPU_SOURCE": f"simulated:{state.path}",
        "HEADWORKS_AGENT_KMSG_PATH": str(tmp_path / "kmsg"),
    }
    (tmp_path / "kmsg").touch()
    with rolling_fleet(tmp_path, {"old": 1}, node_policy=policy, agent_settings=gpus) as fleet:
        fleet.rest.patch("/cordon-policy", {"enabled": True})
        fleet.rest.patch("/remediation-policy", {"mode": "act", "verify_ms": 1000})
        uuid = state.read().gpus[0].uuid
        with state.change() as machine:
            throw_xid(machine, 0, 95)
        done = repaired(fleet)
        assert (done["state"], done["cause"], done["gpu"]) == ("remediated", "xid 95", uuid), done
        assert resets.read_text() == f"{uuid}\n"
        assert set(done["acts"]) == {"drain old-0", "stop old-0", "repair", "start old-0"}
        assert fleet.is_up("old-0")
        (node,) = fleet.rest.get("/nodes")["items"]
        (engine,) = fleet.rest.get("/engines")["items"]
        assert (node["cordoned"], engine["held_out_by"]) == (False, None)
        incidents = {each["labels"]["alertname"]: each["state"] for each in fleet.rest.get("/incidents")["items"]}
        assert incidents["GpuXid"] == "resolved"
        assert "EngineDown" not in incidents, "it was stopped, as it was asked to"
