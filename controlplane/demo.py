"""A whole fleet on one machine: the real control plane, gateway and agents before simulated engines and traffic."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from controlplane import settings_rows as rows
from controlplane.processes import Child, StartFailed, Supervisor, workers
from controlplane.rest_client import Rest
from controlplane.serve import PortTaken, check_port_free

MODEL = "sim/llama-8b"
# Context that one simulated engine can hold, after the first seed's example of a 70B model on two H100.
ENGINE_KV_TOKENS = 200_000
MAX_CONTEXT_TOKENS = 32_768
NODES = ("sim-node-1", "sim-node-2", "sim-node-3")
# engine → (pool, node)
ENGINES = {
    "short-1": ("short", "sim-node-1"),
    "short-2": ("short", "sim-node-2"),
    "long-1": ("long", "sim-node-2"),
    "long-2": ("long", "sim-node-3"),
}
# A request of this many prompt tokens or more goes to the long pool (the first seed's example).
LONG_PROMPT_TOKENS = 1024
_INTERACTIVE = {"default_priority_class": "interactive"}
TENANTS: dict[str, dict[str, Any]] = {
    "support": {"weight": 3, "tpm_limit": 120_000, "rpm_limit": 600, "max_parallel_requests": 32, **_INTERACTIVE},
    "research": {"weight": 2, "tpm_limit": 120_000, "rpm_limit": 600, "max_parallel_requests": 32, **_INTERACTIVE},
    "nightly-batch": {
        "weight": 1,
        "tpm_limit": 240_000,
        "max_parallel_requests": 16,
        "default_priority_class": "batch",
    },
}
# What each tenant sends in the demo, for `simulator.traffic`.
TRAFFIC: dict[str, dict[str, Any]] = {
    "support": {"rate_per_second": 2.0},
    "research": {
        "rate_per_second": 0.3,
        "prompt_tokens": {"kind": "pareto", "min_tokens": 600, "alpha": 1.2, "max_tokens": 16_000},
    },
    "nightly-batch": {
        "rate_per_second": 0.3,
        "prompt_tokens": {"kind": "lognormal", "median_tokens": 1500, "sigma": 1.0, "max_tokens": 16_000},
        "stream_share": 0.0,
    },
}


# The highest port follows the first by less than 20 (`Ports.following`).
FIRST_PORT_MAX = 65_500


# Below the ports that Linux gives to outgoing connections, one of which could take a port between probe and use.
_QUIET_PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = secrets.choice(_QUIET_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class DemoRuns(RuntimeError):
    """Another demo has the directory."""


@dataclass
class Ports:
    """Where each process listens, all on 127.0.0.1."""

    web: int
    gateway: int
    engines: dict[str, int]

    @classmethod
    def following(cls, first: int) -> Ports:
        return cls(first, first + 1, {name: first + 10 + index for index, name in enumerate(ENGINES)})

    @classmethod
    def free(cls) -> Ports:
        return cls(free_port(), free_port(), {name: free_port() for name in ENGINES})

    def check_free(self) -> None:
        """Raises PortTaken."""
        for port in (self.web, self.gateway, *self.engines.values()):
            check_port_free("127.0.0.1", port)


# embedded: SQLite and no Redis, whatever the environment names. environment: what it names.
Profile = Literal["embedded", "environment"]


@dataclass
class Fleet:
    """The demo's processes by name, and what is needed to talk to them."""

    directory: Path
    ports: Ports
    supervisor: Supervisor
    profile: Profile = "embedded"
    children: dict[str, Child] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    password: str = ""
    token: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports.web}"

    @property
    def gateway_address(self) -> str:
        return f"http://127.0.0.1:{self.ports.gateway}"

    @property
    def rest(self) -> Rest:
        return Rest(self.address, self.token, "demo")

    @property
    def environment(self) -> dict[str, str]:
        """The control plane's settings, beside those of the surrounding environment."""
        own_place = {
            "HEADWORKS_DATA_DIR": str(self.directory / "control-plane"),
            "HEADWORKS_HOST": "127.0.0.1",
            "HEADWORKS_PORT": str(self.ports.web),
        }
        if self.profile == "environment":
            return own_place
        return {**own_place, "HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": ""}

    def start(self, name: str, argv: list[str], *, ready_url: str | None = None, wait: bool = True) -> Child:
        child = Child(name, argv, log_dir=self.directory / "log", environment=self.environment, ready_url=ready_url)
        self.children[name] = self.supervisor.start(child, wait=wait)
        return child

    def restart(self, name: str) -> None:
        self.children[name].start()
        self.children[name].wait_ready()


def python_module(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


def build(directory: Path, ports: Ports, supervisor: Supervisor, profile: Profile) -> Fleet:
    """Start everything but traffic and set it up over REST. Raises StartFailed, RestError."""
    fleet = Fleet(directory, ports, supervisor, profile)
    start_control_plane(fleet)
    tokenizer = directory / "tokenizer.json"
    run_once(fleet, python_module("simulator.tokenizer", str(tokenizer)))
    start_engines(fleet, tokenizer)
    configure(fleet, tokenizer)
    start_targets(fleet)
    return fleet


def run_once(fleet: Fleet, argv: list[str], text: str | None = None) -> str:
    """Run a command to its end and return what it printed. Raises StartFailed."""
    done = subprocess.run(
        argv,
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, **fleet.environment},
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise StartFailed(f"{' '.join(argv[1:])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.strip()


def start_control_plane(fleet: Fleet) -> None:
    cli = ("controlplane.cli",)
    made = run_once(fleet, python_module(*cli, "migrate"))
    # "Made the user admin with the password … (shown this once)"
    if "password " not in made:
        raise StartFailed("the database that HEADWORKS_DATABASE_URL names holds users already: give an empty one")
    fleet.password = made.split("password ")[1].split(" ")[0]
    fleet.token = run_once(fleet, python_module(*cli, "create-token", "admin", "demo", "--role", "admin"))
    fleet.start("web", python_module(*cli, "web"), ready_url=f"{fleet.address}/readyz")
    for name in workers(rows.REDIS_URL.read({**os.environ, **fleet.environment})):
        fleet.start(name, python_module(*cli, name))


def start_engines(fleet: Fleet, tokenizer: Path) -> None:
    for number, (name, port) in enumerate(fleet.ports.engines.items()):
        argv = python_module(
            "simulator.engine", "--host", "127.0.0.1", "--port", str(port),
            "--model", MODEL, "--tokenizer", str(tokenizer),
            "--kv-capacity-tokens", str(ENGINE_KV_TOKENS),
            "--max-model-len", str(MAX_CONTEXT_TOKENS), "--seed", str(number),
        )  # fmt: skip
        fleet.start(f"engine-{name}", argv, ready_url=f"http://127.0.0.1:{port}/health", wait=False)
    for name in fleet.ports.engines:
        fleet.children[f"engine-{name}"].wait_ready()


def configure(fleet: Fleet, tokenizer: Path) -> None:
    """Everything an operator would set up by hand, over the same REST calls."""
    rest = fleet.rest
    artifact = rest.call(
        "POST", "/artifacts", tokenizer.read_bytes(), kind="tokenizer", name="sim-llama tokenizer.json"
    )
    rest.post(
        "/models",
        {
            "name": MODEL,
            "tokenizer": artifact["item"]["sha256"],
            "max_context_tokens": MAX_CONTEXT_TOKENS,
            "default_max_tokens": 512,
            "max_tokens": 4096,
            "kv_bytes_per_token": 131_072,
        },
    )
    rest.post("/priority-classes", {"name": "interactive", "rank": 0, "ageing_ms": 2000})
    rest.post("/priority-classes", {"name": "batch", "rank": 10, "ageing_ms": 2000})
    for node in NODES:
        rest.post("/nodes", {"name": node})
    for pool, work in (("short", "short"), ("long", "long")):
        rest.post("/pools", {"name": pool, "model": MODEL, "work": work, "ttft_slo_ms": 2000, "tpot_slo_ms": 50})
    for name, (pool, node) in ENGINES.items():
        url = f"http://127.0.0.1:{fleet.ports.engines[name]}"
        rest.post(
            "/engines", {"name": name, "pool": pool, "node": node, "kind": "vllm", "url": url, "served_model": MODEL}
        )
    rest.post(
        "/routes",
        {
            "name": "long-prompts",
            "order": 10,
            "match": {"min_prompt_tokens": LONG_PROMPT_TOKENS},
            "pools": {"long": 1000},
        },
    )
    rest.post(
        "/routes",
        {"name": "everything-else", "order": 100, "match": {}, "pools": {"short": 1000}, "fallbacks": {"long": 1}},
    )
    for name, limits in TENANTS.items():
        rest.post("/tenants", {"name": name, **limits})
        fleet.keys[name] = rest.post(f"/tenants/{name}/keys", {"label": "demo"})["secret"]


def start_targets(fleet: Fleet) -> None:
    """One gateway and an agent a node, each enrolled with a join token of its own."""
    state = fleet.directory / "targets"
    for node in NODES:
        token_file = join_token_file(fleet, "node", node)
        argv = python_module(
            "gpu_agent.cli", "--control-url", fleet.address, "--join-token-file", str(token_file),
            "--name", node, "--state-dir", str(state / node),
        )  # fmt: skip
        fleet.start(f"agent-{node}", argv)
    token_file = join_token_file(fleet, "gateway", "gateway-1")
    argv = python_module(
        "gateway.cli", "--control-url", fleet.address, "--join-token-file", str(token_file),
        "--name", "gateway-1", "--state-dir", str(state / "gateway-1"),
        "--host", "127.0.0.1", "--port", str(fleet.ports.gateway),
    )  # fmt: skip
    fleet.start("gateway-1", argv, ready_url=f"{fleet.gateway_address}/readyz")


def join_token_file(fleet: Fleet, kind: str, name: str) -> Path:
    secret = fleet.rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
    file = fleet.directory / f"join-{name}"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(secret)
    return file


def start_traffic(fleet: Fleet, *, without: str | None = None) -> None:
    """Traffic of every tenant, or of all but one."""
    plan = {
        name: {"key": fleet.keys[name], "model": MODEL, **shape} for name, shape in TRAFFIC.items() if name != without
    }
    file = fleet.directory / "traffic.json"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(plan, out)
    argv = python_module(
        "simulator.traffic", "--url", fleet.gateway_address, "--tenants", str(file), "--seed", "1",
        "--seconds", str(24 * 3600), "--report", str(fleet.directory / "traffic-report.json"),
    )  # fmt: skip
    fleet.start("traffic", argv)


@contextmanager
def fresh_directory(path: Path) -> Iterator[Path]:
    """An empty directory, held until the block ends; what an earlier demo left there is removed. Raises DemoRuns."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoRuns(f"another demo runs in {path}") from error
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(mode=0o700)
        yield path


def run_demo(first_port: int, profile: Profile) -> int:
    """Run until interrupted; the exit status is 1 where it did not start."""
    ports = Ports.following(first_port)
    try:
        ports.check_free()
        # A directory a port: whoever holds it free may empty its directory, and no other. One that is still starting
        # listens nowhere yet, and is known by its lock.
        with fresh_directory(Path(f".headworks/demo-{first_port}").absolute()) as directory:
            return _run(directory, ports, profile)
    except (PortTaken, DemoRuns) as error:
        print(f"headworks: {error}; stop what runs there, or give another --port", file=sys.stderr)
        return 1


def _run(directory: Path, ports: Ports, profile: Profile) -> int:
    print("Starting a control plane, a gateway, three agents and four simulated engines …", flush=True)
    status = 0
    with Supervisor() as supervisor:
        try:
            _run_until_interrupted(directory, ports, supervisor, profile)
        except KeyboardInterrupt:
            # Asked to end, it ends well.
            print("\nStopping …", flush=True)
        except (StartFailed, OSError, RuntimeError) as error:
            print(f"headworks: the demo did not start: {error}", file=sys.stderr)
            status = 1
    print("Stopped", flush=True)
    return status


def _run_until_interrupted(directory: Path, ports: Ports, supervisor: Supervisor, profile: Profile) -> None:
    fleet = build(directory, ports, supervisor, profile)
    start_traffic(fleet)
    print(f"\n  Pages    {fleet.address}      log in as admin with the password {fleet.password}")
    print(f"  REST     {fleet.address}/api/v1/docs")
    print(f"  Gateway  {fleet.gateway_address}/v1   with the key {fleet.keys['support']} (tenant support)")
    print(f"  Logs     {directory / 'log'}\n\nEngines and traffic are simulated. Ctrl-C stops everything.", flush=True)
    supervisor.watch()
