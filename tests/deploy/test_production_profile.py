"""The production profile of docker-compose.yml, started as processes: its commands, its settings, its health checks."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controlplane.rest_client import Rest
from tests.deploy.compose import ours, programs
from tests.deploy.production import Production
from tests.services import Process, answers_ok, wait_for


@pytest.fixture
def production(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Production]:
    """Its servers run, empty; none of ours does."""
    for name in [name for name in os.environ if name.startswith("HEADWORKS_")]:
        monkeypatch.delenv(name)
    production = Production(tmp_path)
    with production.servers():
        yield production


def test_every_service_gets_healthy_does_its_work_and_ends_in_time(production: Production) -> None:
    assert "password" in production.run_to_end("migrate")
    address = f"http://127.0.0.1:{production.ports['web']}"
    with ExitStack() as stack:
        for name in ("web", "worker", "beat"):
            stack.enter_context(production.running(name))
        token = production.run("web", "headworks", "create-token", "admin", "test", "--role", "admin").strip()
        for kind, name, secret in (
            ("gateway", "gateway-1", "gateway_join_token"),
            ("node", "node-1", "agent_join_token"),
        ):
            production.secret(secret).write_text(production.run("web", "headworks", "join-token", kind, "--name", name))
        for name in ("gateway", "agent"):
            stack.enter_context(production.running(name))

        rest = Rest(address, token, "test")

        def targets() -> dict[str, str]:
            return {target["name"]: target["state"] for target in rest.get("/config/convergence")["targets"]}

        applied = {"gateway-1": "applied", "node-1": "applied"}
        wait_for(lambda: targets() == applied, 30, "both targets run the newest revision")
        metrics = f"http://127.0.0.1:{production.ports['victoriametrics']}/api/v1"
        pushed = f"{metrics}/query?query=headworks_agent_up"
        wait_for(partial(answered, pushed), 30, "what the agent pushed, in VictoriaMetrics")
        # Written by the worker, and by the web process.
        for name in ("headworks_worker_seen_time_seconds", "headworks_config_streams"):
            own = f"{metrics}/query?query={name}"
            wait_for(partial(answered, own), 60, f"{name} in VictoriaMetrics")
        assert answers_ok(f"http://127.0.0.1:{production.ports['alertmanager']}/-/ready")
    # Containers cannot write to anything but their volumes and /tmp.
    assert list(production.root.iterdir()) == []
    assert {file.name for file in production.place("/var/lib/headworks").iterdir()} == {"static", "batches"}


def answered(query: str) -> Any:
    return data_of(query)["result"]


def data_of(url: str) -> Any:
    """What an answer of Prometheus' API carries."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]


# Where the check puts its own control plane and says that it is, what it lets webhooks reach, and what each container
# has for itself.
OF_THE_CHECK = {
    "HEADWORKS_DATA_DIR",
    "HEADWORKS_HOST",
    "HEADWORKS_PORT",
    "HEADWORKS_PULSE_FILE",
    "HEADWORKS_PUBLIC_URL",
    "HEADWORKS_WEBHOOK_ALLOWED_NETWORKS",
}


@pytest.mark.timeout(420)
def test_the_check_holds_on_its_commands_and_settings(production: Production, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "controlplane.cli", "demo", "--check", "--profile", "environment"]
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    with Process(argv, log=tmp_path / "check.log", environment=production.all_settings()) as check:

        def ended() -> bool:
            seen.update(children_of(check.pid))
            return check.exit_code is not None

        wait_for(ended, 400, "the check's end", poll_s=0.1)
        assert check.exit_code == 0, check.log.read_text()
    for name, service in ours().items():
        program, *words = service["command"]
        command = ("-m", programs()[program].partition(":")[0], *words)
        (environment, *_) = (seen[ran] for ran in seen if ran[1 : len(command) + 1] == command)
        wanted = {setting: value for setting, value in production.settings(name).items() if setting not in OF_THE_CHECK}
        assert wanted.items() <= environment.items(), name


def children_of(pid: int) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Command and environment of each process that `pid` started and that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the program's name, which may hold anything: state, parent.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) != pid:
                continue
            words = (folder / "cmdline").read_text().split("\0")[:-1]
            variables = (folder / "environ").read_text().split("\0")[:-1]
        except OSError:
            # It ended meanwhile.
            continue
        yield tuple(words), dict(variable.split("=", 1) for variable in variables)
