"""`python -m tests.web.fleet_pictures build/pictures`: fleet and incidents, empty, well, and one node cordoned."""

from __future__ import annotations

import sys
import tempfile
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


def take(browser: Browser, site: Site, out: Path, what: str, names: tuple[str, ...]) -> None:
    for look, options in LOOKS.items():
        page = browser.new_context(**options).new_page()
        log_in(page, site, "ada")
        for name in names:
            page.goto(f"{site.url}{PATHS[name]}")
            page.screenshot(path=out / f"{name}-{what}-{look}.png", full_page=True)
        page.context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
