"""The lab's simulated engines: their files, what they are started with, and who starts them again when they die."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.support import engine_control
from bench.support.control_plane import answers
from bench.support.lab.plan import ENGINES, Engine
from controlplane.demo.ports import free_port

_LOOK_SECONDS = 0.5
_CONDITIONS = "conditions"
_FIRST_NICENESS = -15


class LabEngines:
    """Simulated engines as processes that a node's agent may start and stop. A keeper stands in for systemd."""

    def __init__(self, folder: Path, tokenizer: Path) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        self.urls: dict[str, str] = {}
        self.control: dict[str, Path] = {}
        # Called when an engine's process is another, or gone.
        self.on_new_process: Callable[[], None] = lambda: None
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def start(self) -> None:
        for number, (name, engine) in enumerate(ENGINES.items()):
            port = free_port()
            self.urls[name] = f"http://127.0.0.1:{port}"
            self.control[name] = self._folder / f"engine-{name}.json"
            self.configure(name, engine.arguments)
            argv = self._argv(number, engine, port, self.config_file(name))
            engine_control.write(self.control[name], argv, self.log(name), f"{self.urls[name]}/health")
        self._all(engine_control.start, list(ENGINES))
        self._keeper.start()

    def stop(self) -> None:
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for file in self.control.values():
            engine_control.stop(file)

    def config_file(self, name: str) -> Path:
        return self._folder / f"engine-{name}.yaml"

    def log(self, name: str) -> Path:
        return self._folder / f"engine-{name}.log"

    def pid(self, name: str) -> int | None:
        """None while it is being stopped or started."""
        with suppress(ValueError, OSError):
            pid: int | None = json.loads(self.control[name].read_text()).get("pid")
            return pid
        return None

    def configure(self, name: str, arguments: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]] = ()) -> bool:
        """What it is to be started with, conditions that outlive a restart among it; whether that is new."""
        lines = dict(arguments)
        if conditions:
            lines[_CONDITIONS] = json.dumps({_CONDITIONS: list(conditions)})
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())
        file = self.config_file(name)
        # An agent's lever adds lines of its own, in an order of its own.
        is_new = not file.exists() or sorted(file.read_text().splitlines()) != sorted(text.splitlines())
        file.write_text(text)
        return is_new

    def restart(self, names: Sequence[str]) -> None:
        """With what their configuration files say now, all at once; nobody drains them."""
        self._all(lambda file: engine_control.main("restart", file), names)

    def terminate(self, name: str) -> None:
        """As a deployment does that knows nothing of streams; the keeper starts it again."""
        if (pid := self.pid(name)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def serves(self, name: str) -> bool:
        return answers(f"{self.urls[name]}/health")

    def go_first(self, name: str) -> None:
        """For as long as it lives its process goes before all others of the machine, where that is allowed.

        Linux may share processors by sessions, and weighs these apart.
        """
        if (pid := self.pid(name)) is not None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, _FIRST_NICENESS)
            with suppress(OSError):
                Path(f"/proc/{pid}/autogroup").write_text(str(_FIRST_NICENESS))

    def hold(self, name: str, conditions: Sequence[Mapping[str, Any]]) -> None:
        """For as long as its process lives (simulator/pathologies/conditions.py)."""
        body = json.dumps({_CONDITIONS: list(conditions)}).encode()
        with urllib.request.urlopen(f"{self.urls[name]}/simulator/conditions", body, timeout=10):
            pass

    def _all(self, do: Any, names: Sequence[str]) -> None:
        if names:
            with ThreadPoolExecutor(len(names)) as pool:
                list(pool.map(do, [self.control[name] for name in names]))

    def _argv(self, number: int, engine: Engine, port: int, config: Path) -> list[str]:
        return [sys.executable, "-m", "simulator.engine", "--port", str(port), "--model", engine.model, "--tokenizer",
                str(self._tokenizer), "--seed", str(number), "--dev-mode", "--config", str(config)]  # fmt: skip

    def _keep(self) -> None:
        known: dict[str, int | None] = {}
        while not self._stop.wait(_LOOK_SECONDS):
            if (now := {name: self.pid(name) for name in self.control}) != known:
                known = now
                self.on_new_process()
            for name, file in self.control.items():
                pid = self.pid(name)
                if pid is not None and not engine_control.runs(pid) and pid == self.pid(name):
                    # It may come up too late, or not at all: the next look tries again.
                    with suppress(SystemExit):
                        engine_control.start(file)
