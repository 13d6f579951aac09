"""The demo's processes by name, and what is needed to talk to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from controlplane import settings_rows as rows
from controlplane.demo.plan import WEBHOOK_NETWORKS
from controlplane.demo.ports import Ports
from controlplane.processes import Child, StartFailed, Supervisor
from controlplane.rest_client import Rest
from controlplane.telemetry import settings_rows as telemetry_rows

# embedded: SQLite, the own metric store and no Redis, whatever the environment names. environment: what it names.
Profile = Literal["embedded", "environment"]
_SERVERS = tuple(
    variable
    for row in (rows.DATABASE_URL, rows.REDIS_URL, telemetry_rows.PROMETHEUS_URL, telemetry_rows.REMOTE_WRITE_URL)
    for variable in row.variables
)


@dataclass
class Fleet:
    """One running demo. `settings`: those that differ from the defaults, beside what the demo needs."""

    directory: Path
    ports: Ports
    supervisor: Supervisor
    profile: Profile = "embedded"
    settings: Mapping[str, str] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    password: str = ""
    token: str = ""
    # The simulated NVML library; None: there is no compiler, and agents read the state files themselves.
    nvml_library: Path | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports.web}"

    @property
    def gateway_address(self) -> str:
        return f"http://127.0.0.1:{self.ports.gateway}"

    @property
    def receiver_address(self) -> str:
        return f"http://127.0.0.1:{self.ports.receiver}"

    @property
    def deliveries(self) -> Path:
        """Where the receiver writes what came, one line of JSON each."""
        return self.directory / "webhooks.jsonl"

    @property
    def rest(self) -> Rest:
        return Rest(self.address, self.token, "demo")

    @property
    def environment(self) -> dict[str, str]:
        """Settings of every process, over those of the surrounding environment."""
        own_place = {
            **self.settings,
            "HEADWORKS_DATA_DIR": str(self.directory / "control-plane"),
            "HEADWORKS_HOST": "127.0.0.1",
            "HEADWORKS_PORT": str(self.ports.web),
            "HEADWORKS_PUBLIC_URL": self.address,
            "HEADWORKS_WEBHOOK_ALLOWED_NETWORKS": WEBHOOK_NETWORKS,
        }
        if self.profile == "environment":
            return own_place
        return {**own_place, **dict.fromkeys(_SERVERS, "")}

    def engine_address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports.engines[name]}"

    @property
    def lora_folder(self) -> Path:
        """Where engines may load adapters from."""
        return self.directory / "loras"

    def gpu_state(self, node: str) -> Path:
        """The file that says what the node's simulated GPUs are and do (simulator/gpu/STATE.md)."""
        return self.directory / "gpus" / f"{node}.json"

    def start(
        self,
        name: str,
        argv: list[str],
        *,
        ready_url: str | None = None,
        wait: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        child = Child(
            name,
            argv,
            log_dir=self.directory / "log",
            environment={**self.environment, **(environment or {})},
            ready_url=ready_url,
        )
        self.children[name] = self.supervisor.start(child, wait=wait)
        return child

    def restart(self, name: str) -> None:
        self.children[name].start()
        self.children[name].wait_ready()

    def run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of this fleet to its end."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False, timeout=300)

    def output_of(self, argv: list[str]) -> str:
        """What a command of this fleet printed. Raises StartFailed where it did not end well."""
        done = self.run(argv)
        if done.returncode:
            raise StartFailed(f"{' '.join(argv[1:])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout.strip()


def python_module(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


def write_secret(file: Path, text: str) -> None:
    """A new file that only this user may read."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
