"""A whole fleet for a benchmark of rollouts: control plane with its worker, nodes with agents, engines, a gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.support import engine_control
from bench.support.control_plane import REASON, answers, wait_for, web_process
from bench.support.processes import ending
from controlplane.demo.ports import free_port
from controlplane.rest_client import Rest
from simulator.tokenizer import CHAT_TEMPLATE, train_tokenizer

MODEL = "bench/rollout"
GATEWAY = "gateway-1"
CONTEXT_TOKENS = 4096
ENGINE = ("--kv-capacity-tokens", "48000", "--max-num-seqs", "48", "--max-model-len", str(CONTEXT_TOKENS))
ACTS = ("start", "stop", "restart", "drain", "sleep", "wake", "warm_up")
# Nothing is waited for longer than it takes: what a person would wait 15 s for is told each second.
SETTINGS = {
    "HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "1",
    "HEADWORKS_AGENT_REPORT_INTERVAL_SECONDS": "2",
    "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": "1",
    "HEADWORKS_AGENT_GPU_SOURCE": "none",
}
EMBEDDED = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": ""}


@dataclass
class RollingFleet:
    """`control`: by engine, the file that engine_control knows it by. `urls`: where each engine listens."""

    folder: Path
    rest: Rest
    gateway_port: int = 0
    key: str = ""
    control: dict[str, Path] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    def is_up(self, engine: str) -> bool:
        return answers(f"{self.urls[engine]}/health")

    def fault(self, engine: str, **fault: Any) -> None:
        """What an engine does wrong from now on (simulator.requests.Fault)."""
        Rest(self.urls[engine], "", "")._send("POST", "/simulator/fault", fault, {}, 10)


@contextmanager
def rolling_fleet(
    folder: Path,
    pools: Mapping[str, int],
    *,
    node_policy: Mapping[str, Any] | None = None,
    agent_settings: Mapping[str, str] | None = None,
) -> Iterator[RollingFleet]:
    """Pools with so many engines each, on a node of its own; the route `all` leads to the first one.

    `node_policy`: what else each node's own policy says; `agent_settings`: what else each agent is told.
    """
    with ExitStack() as stack:
        rest, _ = stack.enter_context(web_process(folder))
        environment = {**os.environ, **EMBEDDED, **SETTINGS, "HEADWORKS_DATA_DIR": str(folder)}
        fleet = RollingFleet(folder, rest)

        def run(name: str, *words: str, **more: str) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", *words], env={**environment, **more}, stdout=log, stderr=log
            )
            stack.enter_context(ending(process, 10))

        _start_engines(stack, fleet, pools)
        run("worker", "controlplane.cli", "worker")
        _configure(fleet, pools)
        for pool in pools:
            policy = {"HEADWORKS_AGENT_POLICY_FILE": str(_policy(fleet, pool, node_policy or {}))}
            more = {**policy, **(agent_settings or {})}
            run(f"agent-{pool}", "gpu_agent.cli", *_joining(fleet, "node", f"n-{pool}"), **more)
        fleet.gateway_port = free_port()
        listens = ("--host", "127.0.0.1", "--port", str(fleet.gateway_port))
        run(GATEWAY, "gateway.cli", *_joining(fleet, "gateway", GATEWAY), *listens)
        wait_for(lambda: answers(f"http://127.0.0.1:{fleet.gateway_port}/readyz"), "the gateway")
        wait_for(lambda: _all_told(fleet), "every agent's report")
        yield fleet


def _start_engines(stack: ExitStack, fleet: RollingFleet, pools: Mapping[str, int]) -> None:
    tokenizer = fleet.folder / "tokenizer.json"
    train_tokenizer().save(str(tokenizer))
    for number, name in enumerate(_engines(pools)):
        port = free_port()
        fleet.urls[name] = f"http://127.0.0.1:{port}"
        fleet.control[name] = file = fleet.folder / f"engine-{name}.json"
        argv = [sys.executable, "-m", "simulator.engine", "--port", str(port), "--model", MODEL, "--tokenizer",
                str(tokenizer), "--seed", str(number), "--dev-mode", *ENGINE]  # fmt: skip
        engine_control.write(file, argv, fleet.folder / f"engine-{name}.log", f"{fleet.urls[name]}/health")
        engine_control.start(file)
        stack.callback(engine_control.stop, file)


def _engines(pools: Mapping[str, int]) -> Sequence[str]:
    return [f"{pool}-{number}" for pool, count in pools.items() for number in range(count)]


def _configure(fleet: RollingFleet, pools: Mapping[str, int]) -> None:
    rest = fleet.rest
    files = {
        kind: rest.call("POST", "/artifacts", content, kind=kind, name=kind)["item"]["sha256"]
        for kind, content in (
            ("tokenizer", (fleet.folder / "tokenizer.json").read_bytes()), ("chat_template", CHAT_TEMPLATE.encode()),
        )
    }  # fmt: skip
    rest.post("/models", {"name": MODEL, "max_context_tokens": CONTEXT_TOKENS, "default_max_tokens": 256,
                          "max_tokens": 1024, **files})  # fmt: skip
    for pool, count in pools.items():
        rest.post("/nodes", {"name": f"n-{pool}"})
        rest.post("/pools", {"name": pool, "model": MODEL, "ttft_slo_ms": 2000, "tpot_slo_ms": 100})
        for number in range(count):
            name = f"{pool}-{number}"
            at = {"node": f"n-{pool}", "url": fleet.urls[name], "served_model": MODEL}
            rest.post("/engines", {"name": name, "pool": pool, "kind": "vllm", **at})
    rest.post("/routes", {"name": "all", "pools": {next(iter(pools)): 1000}})
    rest.post("/tenants", {"name": "bench", "max_parallel_requests": 10_000})
    fleet.key = rest.post("/tenants/bench/keys", {"label": "bench"})["secret"]


def _policy(fleet: RollingFleet, pool: str, node: Mapping[str, Any]) -> Path:
    """The node's own file: what may be done to its engines, and by which commands."""
    engines = {
        name: {
            "allow": list(ACTS),
            **{f"{verb}_command": [sys.executable, "-m", "bench.support.engine_control", verb, str(file)]
               for verb in ("start", "stop", "restart")},
        }
        for name, file in fleet.control.items()
        if name.startswith(f"{pool}-")
    }  # fmt: skip
    file = fleet.folder / f"policy-{pool}.json"
    file.write_text(json.dumps({**node, "engines": engines}))
    return file


def _joining(fleet: RollingFleet, kind: str, name: str) -> list[str]:
    token = fleet.folder / f"join-{name}"
    token.write_text(fleet.rest.post("/targets/join-tokens", {"kind": kind, "name": name}, reason=REASON)["secret"])
    token.chmod(0o600)
    return ["--control-url", fleet.rest.base_url, "--join-token-file", str(token), "--name", name,
            "--state-dir", str(fleet.folder / "targets" / name)]  # fmt: skip


def _all_told(fleet: RollingFleet) -> bool:
    engines = fleet.rest.get("/engines")["items"]
    return all(engine["state"] == "up" and engine["kv_capacity_tokens"] for engine in engines)
