"""The agent's process and a real control plane: what PromQL, the events and the fleet say of a node."""

from __future__ import annotations

import asyncio

import pytest

from simulator.gpu import fault
from tests.controlplane.configs.live import live_site
from tests.gpu_agent.processes import agent
from tests.services import wait_for

MODEL, POOL = "llama", "short"
PATIENCE_SECONDS = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with live_site(tmp_path_factory.mktemp("agent-live")) as live:
        live.rest.post("/models", {"name": MODEL, "max_context_tokens": 8192})
        live.rest.post("/pools", {"name": POOL, "model": MODEL})
        live.rest.post("/nodes", {"name": "node-1"})
        yield live


def value(site, promql):
    """The only sample that the query answers; None for no sample."""
    found = site.rest.query(promql)
    return float(found[0]["value"][1]) if len(found) == 1 else None


async def test_a_nodes_gpus_engines_events_and_state_reach_the_control_plane(
    site, engine, environment, state, tmp_path
):
    at = {"node": "node-1", "url": engine.url, "served_model": MODEL}
    site.rest.post("/engines", {"name": "e1", "pool": POOL, "kind": "vllm", **at})
    join_token = site.rest.post("/targets/join-tokens", {"kind": "node", "name": "node-1"})["secret"]
    environment |= {"HEADWORKS_AGENT_JOIN_TOKEN": join_token}
    with agent(tmp_path, site.address, **environment):
        # In a thread: the engine answers from this loop.
        await asyncio.to_thread(follow, site, state)


def follow(site, state):
    def until(what, holds):
        return wait_for(holds, PATIENCE_SECONDS, what)

    until("the engine's tokens", lambda: value(site, 'headworks_engine_generation_tokens_total{engine="e1"}') == 150)
    labels = 'node="node-1",pool="short",model="llama",kind="vllm"'
    assert value(site, f"headworks_engine_kv_cache_capacity_tokens{{{labels}}}") == 2**20
    assert 0 < value(site, "histogram_quantile(0.5, sum by (le) (headworks_engine_ttft_seconds_bucket))") < 0.1
    until("three GPUs", lambda: value(site, 'sum(headworks_gpu_up{node="node-1"})') == 3)
    with state.change() as machine:
        fault.throw_xid(machine, 1, 79)
        fault.lose(machine, 1)
    until("the lost GPU", lambda: value(site, 'headworks_gpu_up{gpu="1"}') == 0)
    until("its values to end", lambda: site.rest.query('DCGM_FI_DEV_GPU_UTIL{gpu="1"}') == [])
    until("its XID", lambda: value(site, 'headworks_gpu_xid_errors_total{gpu="1"}') == 1)
    until("its state in the fleet", lambda: "lost" in {gpu["state"] for gpu in site.rest.get("/gpus")["items"]})
    until("both events", lambda: told(site).keys() >= {"xid", "gpu_lost"})
    xid = told(site)["xid"]
    uuid = state.read().gpus[1].uuid
    assert (xid["node"], xid["subject"], xid["severity"]) == ("node-1", uuid, "critical")


def told(site):
    """Events by kind."""
    return {event["kind"]: event for event in site.rest.get("/events")["items"]}
