"""The lab's processes: control plane with its worker, nodes with agents and simulated GPUs, engines, a gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.support.control_plane import REASON, answers, wait_for, web_process
from bench.support.lab import plan
from bench.support.lab.engines import LabEngines
from bench.support.lab.gpus import LabGpus
from bench.support.processes import ending
from controlplane.demo.ports import free_port
from controlplane.rest_client import Rest
from simulator.tokenizer import CHAT_TEMPLATE, train_tokenizer

_EMBEDDED = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": "", "HEADWORKS_PROMETHEUS_URL": "",
             "HEADWORKS_REMOTE_WRITE_URL": ""}  # fmt: skip


@dataclass
class Lab:
    """A running fleet that is well, until something is done to it."""

    folder: Path
    rest: Rest
    engines: LabEngines
    gpus: LabGpus
    window_seconds: int
    gateway_port: int = 0
    keys: dict[str, list[str]] = field(default_factory=dict)

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def add_tenant(self, name: str, limits: Mapping[str, Any], keys: int = 1) -> None:
        """`keys`: as many as its users have."""
        self.rest.post("/tenants", {"name": name, **limits})
        made = (self.rest.post(f"/tenants/{name}/keys", {"label": f"lab-{number}"}) for number in range(keys))
        self.keys[name] = [each["secret"] for each in made]


@contextmanager
def lab(folder: Path, window_seconds: int, interval_seconds: int = 5) -> Iterator[Lab]:
    """Everything runs and has told of itself once."""
    with ExitStack() as stack:
        tokenizer = folder / "tokenizer.json"
        train_tokenizer().save(str(tokenizer))
        engines = LabEngines(folder, tokenizer)
        stack.callback(engines.stop)
        settings = {**_EMBEDDED, **plan.control_plane_settings(window_seconds, interval_seconds)}
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(engines.start)
            rest, _ = stack.enter_context(web_process(folder, settings))
            starting.result()
        gpus = LabGpus(folder, engines)
        made = Lab(folder, rest, engines, gpus, window_seconds)
        _start(stack, made, {**os.environ, **settings, "HEADWORKS_DATA_DIR": str(folder)}, tokenizer)
        yield made


def _start(stack: ExitStack, made: Lab, environment: Mapping[str, str], tokenizer: Path) -> None:
    folder = made.folder

    def run(name: str, *words: str, **more: str) -> None:
        log = stack.enter_context((folder / f"{name}.log").open("wb"))
        process = subprocess.Popen([sys.executable, "-m", *words], env={**environment, **more}, stdout=log, stderr=log)
        stack.enter_context(ending(process, 10))

    run("worker", "controlplane.cli", "worker")
    made.gpus.start(stack, folder)
    _configure(made, tokenizer)
    for node in plan.NODES:
        kernel_log = folder / f"kmsg-{node}"
        kernel_log.touch(mode=0o600)
        own = {
            "HEADWORKS_AGENT_POLICY_FILE": str(_policy(made, node)),
            "HEADWORKS_AGENT_KMSG_PATH": str(kernel_log),
            "HEADWORKS_AGENT_GPU_SOURCE": f"simulated:{made.gpus.files[node].path}",
        }
        run(f"agent-{node}", "gpu_agent.cli", *_joining(made, "node", node), **plan.AGENT_SETTINGS, **own)
    made.gateway_port = free_port()
    listens = ("--host", "127.0.0.1", "--port", str(made.gateway_port))
    joining = _joining(made, "gateway", plan.GATEWAY)
    run(plan.GATEWAY, "gateway.cli", *joining, *listens, **plan.GATEWAY_SETTINGS)
    wait_for(lambda: answers(f"{made.gateway_url}/readyz"), "the gateway")
    wait_for(lambda: _all_told(made.rest), "every agent's report")


def _configure(made: Lab, tokenizer: Path) -> None:
    rest = made.rest
    files = {
        kind: rest.call("POST", "/artifacts", content, kind=kind, name=kind)["item"]["sha256"]
        for kind, content in (("tokenizer", tokenizer.read_bytes()), ("chat_template", CHAT_TEMPLATE.encode()))
    }
    for noun, rows in (("priority-classes", plan.PRIORITY_CLASSES), ("session-limits", plan.SESSION_LIMITS)):
        for name, row in rows.items():
            rest.post(f"/{noun}", {"name": name, **row})
    for name, row in plan.MODELS.items():
        rest.post("/models", {"name": name, **row, **files})
    for node in plan.NODES:
        rest.post("/nodes", {"name": node})
    for name, row in plan.POOLS.items():
        rest.post("/pools", {"name": name, **row})
    for name, engine in plan.ENGINES.items():
        at = {"node": engine.node, "url": made.engines.urls[name], "served_model": engine.model}
        rest.post("/engines", {"name": name, "pool": engine.pool, "kind": "vllm", **at})
    for name, row in plan.ROUTES.items():
        rest.post("/routes", {"name": name, **row})
    for name, row in plan.TENANTS.items():
        made.add_tenant(name, row)


def _policy(made: Lab, node: str) -> Path:
    """The node's own file: what may be done to its engines, and by which commands."""
    engines = {
        name: {
            "allow": list(plan.ENGINE_ACTS),
            "arguments": list(plan.ENGINE_ARGUMENTS),
            "config_file": str(made.engines.config_file(name)),
            "log_file": str(made.engines.log(name)),
            "model_path": str(_weights(made.folder)),
            **{f"{verb}_command": [sys.executable, "-m", "bench.support.engine_control", verb,
                                   str(made.engines.control[name])] for verb in ("start", "stop", "restart")},
        }
        for name, engine in plan.ENGINES.items()
        if engine.node == node
    }  # fmt: skip
    file = made.folder / f"policy-{node}.json"
    file.write_text(json.dumps({"allow": plan.NODE_ACTS, "engines": engines}))
    return file


def _weights(folder: Path) -> Path:
    """Files as large as a model's, that take no room on the disk."""
    path = folder / "model"
    if not path.exists():
        path.mkdir()
        with (path / "model.safetensors").open("wb") as file:
            file.truncate(plan.MODEL_FILE_BYTES)
    return path


def _joining(made: Lab, kind: str, name: str) -> list[str]:
    token = made.folder / f"join-{name}"
    token.write_text(made.rest.post("/targets/join-tokens", {"kind": kind, "name": name}, reason=REASON)["secret"])
    token.chmod(0o600)
    return ["--control-url", made.rest.base_url, "--join-token-file", str(token), "--name", name,
            "--state-dir", str(made.folder / "targets" / name)]  # fmt: skip


def _all_told(rest: Rest) -> bool:
    engines = rest.get("/engines")["items"]
    return all(engine["state"] == "up" and engine["kv_capacity_tokens"] for engine in engines)
