"""Start the demo's processes, each after what it needs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from controlplane import settings_rows as rows
from controlplane.demo import plan
from controlplane.demo.configure import configure, receiver_secret
from controlplane.demo.fleet import Fleet, python_module, write_secret
from controlplane.processes import StartFailed, workers


def start_all(fleet: Fleet) -> None:
    """Everything but traffic, set up over REST. Raises StartFailed, RestError."""
    _start_control_plane(fleet)
    tokenizer, chat_template = fleet.directory / "tokenizer.json", fleet.directory / "chat_template.jinja"
    fleet.output_of(python_module("simulator.tokenizer", str(tokenizer), "--chat-template", str(chat_template)))
    _start_engines(fleet, tokenizer)
    _start_gpus(fleet)
    configure(fleet, {"tokenizer": tokenizer, "chat_template": chat_template})
    _start_receiver(fleet)
    for node in plan.NODES:
        _start_agent(fleet, node)
    _start_gateway(fleet)


def start_traffic(fleet: Fleet, *, without: str | None = None) -> None:
    """Traffic of every tenant, or of all but one."""
    tenants = {
        name: {"key": fleet.keys[name], "model": plan.MODEL, **shape}
        for name, shape in plan.TRAFFIC.items()
        if name != without
    }
    file = fleet.directory / "traffic.json"
    write_secret(file, json.dumps(tenants))
    argv = python_module(
        "simulator.traffic", "--url", fleet.gateway_address, "--tenants", str(file), "--seed", "1",
        "--seconds", str(24 * 3600), "--report", str(fleet.directory / "traffic-report.json"),
    )  # fmt: skip
    fleet.start("traffic", argv)


def _start_control_plane(fleet: Fleet) -> None:
    cli = ("controlplane.cli",)
    made = fleet.output_of(python_module(*cli, "migrate"))
    # "Made the user admin with the password … (shown this once)"
    if "password " not in made:
        raise StartFailed("the database that HEADWORKS_DATABASE_URL names holds users already: give an empty one")
    fleet.password = made.split("password ")[1].split(" ")[0]
    fleet.token = fleet.output_of(python_module(*cli, "create-token", "admin", "demo", "--role", "admin"))
    fleet.start("web", python_module(*cli, "web"), ready_url=f"{fleet.address}/readyz")
    for name in workers(rows.REDIS_URL.read({**os.environ, **fleet.environment})):
        fleet.start(name, python_module(*cli, name))


def _start_engines(fleet: Fleet, tokenizer: Path) -> None:
    for number, (name, port) in enumerate(fleet.ports.engines.items()):
        argv = python_module(
            "simulator.engine", "--host", "127.0.0.1", "--port", str(port),
            "--model", plan.MODEL, "--tokenizer", str(tokenizer),
            "--kv-capacity-tokens", str(plan.ENGINE_KV_TOKENS), "--speed", str(plan.ENGINE_SPEED),
            "--max-model-len", str(plan.MAX_CONTEXT_TOKENS), "--seed", str(number),
            "--dev-mode", "--runtime-lora",
        )  # fmt: skip
        fleet.start(f"engine-{name}", argv, ready_url=f"{fleet.engine_address(name)}/health", wait=False)
    for name in fleet.ports.engines:
        fleet.children[f"engine-{name}"].wait_ready()


def _start_gpus(fleet: Fleet) -> None:
    """A driver for each node's GPUs, whose load follows the node's engines; and the library that shows them."""
    built = fleet.run(python_module("simulator.gpu.build", str(fleet.directory / "nvml")))
    fleet.nvml_library = None if built.returncode else Path(built.stdout.strip())
    for number, node in enumerate(plan.NODES):
        state = fleet.gpu_state(node)
        argv = python_module(
            "simulator.gpu.drive", str(state), "--gpus", str(plan.GPUS_PER_NODE), "--name", node, "--seed", str(number)
        )
        for engine in plan.engines_of(node):
            argv += ["--engine-url", fleet.engine_address(engine)]
        fleet.start(f"gpus-{node}", argv)
    for node in plan.NODES:
        fleet.children[f"gpus-{node}"].wait_for(fleet.gpu_state(node).exists, f"{fleet.gpu_state(node)}", 30)


def _start_receiver(fleet: Fleet) -> None:
    argv = python_module(
        "simulator.receiver", "--host", "127.0.0.1", "--port", str(fleet.ports.receiver),
        "--secret-file", str(receiver_secret(fleet)), "--out", str(fleet.deliveries),
    )  # fmt: skip
    fleet.start("receiver", argv, ready_url=f"{fleet.receiver_address}/health")


def _start_agent(fleet: Fleet, node: str) -> None:
    argv = python_module("gpu_agent.cli", *_target_options(fleet, "node", node))
    policy = {"HEADWORKS_AGENT_POLICY_FILE": str(_write_policy(fleet, node))}
    fleet.start(f"agent-{node}", argv, environment={**_gpu_settings(fleet, node), **policy})


def _write_policy(fleet: Fleet, node: str) -> Path:
    """The node's own file about what may be done to it."""
    fleet.lora_folder.mkdir(mode=0o700, exist_ok=True)
    of_engine = {"allow": plan.ENGINE_ACTS, "lora_folder": str(fleet.lora_folder)}
    engines = dict.fromkeys(plan.engines_of(node), of_engine)
    file = fleet.directory / f"policy-{node}.json"
    write_secret(file, json.dumps({"allow": plan.NODE_ACTS, "engines": engines}))
    return file


def _gpu_settings(fleet: Fleet, node: str) -> dict[str, str]:
    state = str(fleet.gpu_state(node))
    # Real GPUs of this machine have no part in the demo: a log of its own, in which nothing stands.
    kernel_log = fleet.directory / "kmsg"
    kernel_log.touch(mode=0o600)
    settings = {"HEADWORKS_AGENT_KMSG_PATH": str(kernel_log), "HEADWORKS_AGENT_XID_RULES_FILE": ""}
    if fleet.nvml_library is None:
        return {**settings, "HEADWORKS_AGENT_GPU_SOURCE": f"simulated:{state}"}
    return {
        **settings,
        "HEADWORKS_AGENT_GPU_SOURCE": "nvml",
        "HEADWORKS_AGENT_NVML_LIBRARY": str(fleet.nvml_library),
        "HEADWORKS_FAKE_NVML_STATE": state,
    }


def _start_gateway(fleet: Fleet) -> None:
    argv = python_module(
        "gateway.cli", *_target_options(fleet, "gateway", plan.GATEWAY),
        "--host", "127.0.0.1", "--port", str(fleet.ports.gateway),
    )  # fmt: skip
    fleet.start(plan.GATEWAY, argv, ready_url=f"{fleet.gateway_address}/readyz")


def _target_options(fleet: Fleet, kind: str, name: str) -> list[str]:
    """Those of any target, with a join token of its own."""
    token_file = fleet.directory / f"join-{name}"
    write_secret(token_file, fleet.rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"])
    return [
        "--control-url", fleet.address, "--join-token-file", str(token_file),
        "--name", name, "--state-dir", str(fleet.directory / "targets" / name),
    ]  # fmt: skip
