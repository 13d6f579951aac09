"""The services of docker-compose.yml as processes of this machine: its commands and settings, Debian's servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.deploy.compose import ROOT, ours, read, seconds
from tests.servers import postgres_server
from tests.services import Process, free_port, service_binary

# Port of each service in its container.
_PORTS = {
    "web": 8600,
    "gateway": 8400,
    "postgresql": 5432,
    "redis": 6379,
    "victoriametrics": 8428,
    "alertmanager": 9093,
}
# Service → Debian's name of its program, and the options that its image stands for.
_SERVERS: dict[str, tuple[str, list[str]]] = {
    "redis": ("redis-server", ["--bind", "0.0.0.0", "--port", "6379", "--dir", "/data"]),
    "victoriametrics": ("victoria-metrics", []),
    "alertmanager": ("alertmanager", []),
}


class Production:
    """All services on 127.0.0.1; the containers' paths lie below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._services: dict[str, dict[str, Any]] = read()["services"]
        self.ports = {name: free_port() for name in _PORTS}
        # Where processes start. A container's is its root, which they cannot write to.
        self.root = folder / "root"
        self.root.mkdir()
        self._make_secrets()
        for name, service in self._services.items():
            self._own_memory(name).mkdir()
            for volume in service.get("volumes", []):
                self.place(volume.split(":")[1]).mkdir(parents=True, exist_ok=True)

    def place(self, path: str) -> Path:
        """Where a container's path is on this machine."""
        return Path(f"{self._folder}{path}")

    def here(self, text: str) -> str:
        """A container's word, address or setting, with this machine's hosts, ports and paths."""
        for name, port in _PORTS.items():
            text = re.sub(rf"\b(?:{name}|0\.0\.0\.0|127\.0\.0\.1):{port}\b", f"127.0.0.1:{self.ports[name]}", text)
            text = re.sub(rf"^{port}$", str(self.ports[name]), text)
        text = text.replace("0.0.0.0", "127.0.0.1")
        # A path begins where no address and no other path goes on.
        return re.sub(r"(?<![\w/:])/(?=\w)", f"{self._folder}/", text)

    def secret(self, name: str) -> Path:
        return self.place(f"/run/secrets/{name}")

    def settings(self, service: str) -> dict[str, str]:
        environment = self._services[service]["environment"]
        return {name: self._within(service, value) for name, value in environment.items()}

    def all_settings(self) -> dict[str, str]:
        """Those of all of Headworks' programs at once: no two services give one setting two values."""
        environments = [service["environment"] for service in ours().values()]
        merged: dict[str, str] = {}
        for name, value in ((name, value) for environment in environments for name, value in environment.items()):
            assert merged.setdefault(name, value) == value, name
        return {name: self._within("web", value) for name, value in merged.items()}

    @contextmanager
    def servers(self) -> Iterator[None]:
        """PostgreSQL, Redis, VictoriaMetrics and Alertmanager, until the block ends."""
        with ExitStack() as stack:
            url = urlsplit(stack.enter_context(postgres_server(self.secret("database_password").read_text())))
            self.ports["postgresql"] = url.port or 0
            for name in _SERVERS:
                stack.enter_context(self._server(name))
            yield

    @contextmanager
    def _server(self, name: str) -> Iterator[None]:
        service = self._services[name]
        program, image_options = _SERVERS[name]
        for config in service.get("configs", []):
            file = self.place(config["target"])
            file.parent.mkdir(parents=True)
            file.write_text(self.here((ROOT / read()["configs"][config["source"]]["file"]).read_text()))
        words = [word for word in service["command"] if word != program]
        options = [self.here(word) for word in [*words, *image_options]]
        with Process([service_binary(program), *options], log=self._log(name)) as process:
            process.wait_for_port(self.ports[name])
            yield

    @contextmanager
    def running(self, name: str) -> Iterator[Process]:
        """A service of ours, healthy by its own check. It ends well when it is asked to, in the time that it has."""
        service = self._services[name]
        argv = self._argv(name, *service["command"])
        with Process(argv, log=self._log(name), environment=self.settings(name), cwd=self.root) as process:
            process.wait_until(lambda: self.healthy(name), f"{name} is healthy")
            yield process
            assert process.stop(seconds(service["stop_grace_period"])) == 0

    def healthy(self, name: str) -> bool:
        """Whether the service's own health check passes."""
        kind, *words = self._services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return subprocess.run(self._argv(name, *words), capture_output=True, check=False).returncode == 0

    def run(self, service: str, *words: str) -> str:
        """What a command prints that ends by itself, with a service's settings."""
        environment = {**os.environ, **self.settings(service)}
        argv = self._argv(service, *words)
        done = subprocess.run(argv, env=environment, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_to_end(self, service: str) -> str:
        return self.run(service, *self._services[service]["command"])

    def _argv(self, service: str, program: str, *words: str) -> list[str | Path]:
        return [Path(sys.executable).with_name(program), *(self._within(service, word) for word in words)]

    def _own_memory(self, service: str) -> Path:
        """What is /tmp in the service's container, and in no other."""
        return self._folder / f"tmp-{service}"

    def _within(self, service: str, text: str) -> str:
        return self.here(text).replace(f"{self._folder}/tmp/", f"{self._own_memory(service)}/")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _make_secrets(self) -> None:
        maker = self.place("/run/make-secrets")
        maker.parent.mkdir()
        maker.write_bytes((ROOT / "deploy/docker/make-secrets").read_bytes())
        subprocess.run(["sh", maker], check=True)
