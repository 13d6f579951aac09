"""A small fleet with agents: well, with a GPU that falls off the bus, and asked for acts."""

from __future__ import annotations

import time
from typing import Any

from tests.web.agent import Agent
from tests.web.site import Site

MODEL = "meta-llama/Llama-3.1-8B"
LOST = 3
# Node → its engines.
NODES = {"rack-1": ["llama-a", "llama-b"], "rack-2": ["llama-c"], "rack-3": ["batch-a"]}


def fill_fleet(site: Site) -> list[Agent]:
    """Three nodes of eight GPUs, four engines in two pools; the cordon policy is on."""
    rest = site.rest
    # Nothing listens there: messages to it wait, and say why.
    rest.post("/receivers", {"name": "oncall", "url": "https://oncall.invalid/hooks/headworks"})
    rest.patch("/cordon-policy", {"enabled": True, "max_nodes_permille": 340})
    rest.post("/models", {"name": MODEL, "max_context_tokens": 131_072})
    for pool in ("chat", "batch"):
        rest.post("/pools", {"name": pool, "model": MODEL})
    agents = []
    for name, engines in NODES.items():
        agent = Agent(site, name)
        for engine in engines:
            pool = "batch" if engine.startswith("batch") else "chat"
            row = {"name": engine, "node": name, "pool": pool, "served_model": MODEL}
            rest.post("/engines", {**row, "url": "http://10.2.0.7:8000"})
        agents.append(agent)
        say_all_is_well(agent)
    return agents


def say_all_is_well(agent: Agent) -> None:
    agent.report(engines=[_up(engine) for engine in NODES[agent.name]])
    agent.push(NODES[agent.name])


def fall_off_the_bus(agent: Agent) -> None:
    """XID 79 on one GPU, and the engine that ran on it."""
    engines = NODES[agent.name]
    first, *others = engines
    down = {"name": first, "state": "down", "error": "GET /health: connection refused"}
    agent.report(lost=LOST, engines=[down, *map(_up, others)])
    agent.push(others, lost=LOST)
    gpu = agent.uuid(LOST)
    agent.say("xid", gpu, "critical", f"XID 79 (GPU has fallen off the bus) on GPU {LOST}: reboot the node")
    agent.say("gpu_lost", gpu, "critical", f"GPU {LOST} is lost: it is off the bus")
    agent.say("engine_down", first, "warning", f"{first} is down: GET /health: connection refused")


def ask_for_acts(site: Site, agent: Agent) -> None:
    """One act of each sort of end, on a node that allows some and has found an engine more."""
    first = NODES[agent.name][0]
    asked = [
        {"action": "sleep", "engine": first, "arguments": {"level": 2}},
        {"action": "restart", "engine": first, "arguments": {"arguments": {"max-num-seqs": 64}}},
        {"action": "drain", "engine": NODES[agent.name][-1]},
        {"action": "release_gpus", "node": agent.name},
        {"action": "wake", "engine": first},
    ]
    ids = [site.rest.post("/acts", act, reason="memory for tonight's batch")["item"]["id"] for act in asked]
    at_ms = int(time.time() * 1000)
    acts = [
        {"id": ids[0], "state": "done", "at_ms": at_ms, "took_ms": 1840, "detail": "sleeps at level 2"},
        {"id": ids[1], "state": "refused", "at_ms": at_ms, "reason": "not_allowed", "detail": "allowed: sleep, wake"},
        {"id": ids[2], "state": "running", "at_ms": at_ms, "took_ms": 12_000},
    ]
    facts = {
        "condition": "sleeping",
        "started_at_ms": at_ms - 3_600_000,
        "arguments": {"model": MODEL, "max-num-seqs": "128", "gpu-memory-utilization": "0.92"},
        "start_phases_ms": {"load": 41_000, "compile": 12_300},
        "model_path": "/models/llama-3.1-8b",
        "model_bytes": 16 << 30,
        "probes": {"canary": "ok", "json_schema": "failed"},
    }
    found = [{"url": "http://127.0.0.1:8009", "kind": "sglang", "version": "0.5.3", "models": ["Qwen/Qwen3-8B"]}]
    engines = [{**_up(first), **facts}, *map(_up, NODES[agent.name][1:])]
    allowed = {"": ["release_gpus"], **{engine: ["sleep", "wake", "drain"] for engine in NODES[agent.name]}}
    agent.report(engines=engines, acts=acts, found_engines=found, allowed_acts=allowed)


def end_newest_act(site: Site, agent: Agent) -> None:
    """Its agent has done what was asked last."""
    act = site.rest.get("/acts")["items"][0]
    done = {"id": act["id"], "state": "done", "at_ms": int(time.time() * 1000), "took_ms": 700}
    agent.report(engines=[_up(engine) for engine in NODES[agent.name]], acts=[done])


def _up(engine: str) -> dict[str, Any]:
    return {"name": engine, "state": "up", "version": "0.11.0+simulated", "kv_capacity_tokens": 420_000}


ACT_PATHS = {
    "fleet": "/fleet/",
    "node": "/fleet/rack-1/",
    "acts": "/acts/",
    "acts-none": "/acts/?state=failed",
    "act-subject": "/acts-new/",
    "act-choice": "/acts-new/?engine=llama-a",
    "act-form": "/acts-new/restart/?engine=llama-a",
    "act-sleep": "/acts-new/sleep/?engine=llama-b",
}
