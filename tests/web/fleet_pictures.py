"""`python -m tests.web.fleet_pictures build/pictures`: fleet and incidents, empty, well, and one node cordoned."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.programs import PROGRAMS
from tests.web.agent import Agent
from tests.web.pictures import LOOKS, log_in
from tests.web.site import JoinedTarget, Site, running_site

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


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headworks-pictures-") as folder, running_site(Path(folder)) as site:
        with sync_playwright() as playwright:
            chromium = PROGRAMS["chromium"].find()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            take(browser, site, out, "empty", ("fleet", "incidents", "receivers"))
            gateway = JoinedTarget(site, "gateway", "edge-1")
            agents = fill_fleet(site)
            take(browser, site, out, "well", ("fleet", "node"))
            fall_off_the_bus(agents[1])
            take(browser, site, out, "fault", tuple(PATHS))
            ask_for_acts(site, agents[0])
            take(browser, site, out, "asked", tuple(ACT_PATHS))
            browser.close()
        gateway.stop()
    print(f"{len(list(out.glob('*.png')))} pictures in {out}")


PATHS = {
    "fleet": "/fleet/",
    "node": "/fleet/rack-2/",
    "incidents": "/incidents/",
    "incident": "/incidents/1/",
    "receivers": "/receivers/",
    "cordon": "/fleet/rack-1/cordon/",
    "policy": "/cordon-policy/edit/",
    "receiver-new": "/receivers-new/",
    "receiver-test": "/receivers/oncall/test/",
}


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


def take(browser: Browser, site: Site, out: Path, what: str, names: tuple[str, ...]) -> None:
    for look, options in LOOKS.items():
        page = browser.new_context(**options).new_page()
        log_in(page, site, "ada")
        for name in names:
            page.goto(f"{site.url}{(PATHS | ACT_PATHS)[name]}")
            for folded in page.locator("td details").all():
                folded.evaluate("(details) => { details.open = true; }")
            page.screenshot(path=out / f"{name}-{what}-{look}.png", full_page=True)
        page.context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
