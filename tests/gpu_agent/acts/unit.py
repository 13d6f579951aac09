"""A simulated engine that a script restarts, as systemctl does a unit."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager

from gpu_agent.policy import EnginePolicy
from tests.gpu_agent.acts.works import script
from tests.services import Process, free_port, wait_for

FILE = "# of the node\nkv-capacity-tokens: 20000\nmax-num-seqs: 64\n"


class Unit:
    """Its script counts its runs, and waits in each until the file `hold` is gone."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.config, self.pid_file = folder / "engine.yaml", folder / "pid"
        self.config.write_text(FILE)
        (folder / "log").touch()
        engine = f"{sys.executable} -m simulator.engine --port {self.port} --model llama --config {self.config}"
        self.script = script(
            folder / "restart",
            f"echo run >>{folder}/runs\nwhile [ -e {folder}/hold ]; do sleep 0.02; done\n"
            f"[ -e {self.pid_file} ] && kill $(cat {self.pid_file}) && "
            f"while kill -0 $(cat {self.pid_file}) 2>/dev/null; do sleep 0.05; done\n"
            f"cd {os.getcwd()}\n{engine} >>{folder}/log 2>&1 &\necho $! >{self.pid_file}",
        )

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self):
        return (self.folder / "runs").read_text().count("run")

    def policy(self, **changed):
        settings = {
            "restart_command": [str(self.script)],
            "config_file": str(self.config),
            "arguments": ["kv-capacity-tokens", "max-num-seqs", "max-num-batched-tokens"],
        }
        return EnginePolicy(allow=["restart"], **(settings | changed))

    def stop(self):
        if self.pid_file.exists():
            os.kill(int(self.pid_file.read_text()), signal.SIGKILL)


@contextmanager
def unit_in(folder):
    unit = Unit(folder)
    try:
        with Process([unit.script], log=folder / "first-log") as first:
            first.wait()
        wait_for(lambda: "http://" in (folder / "log").read_text(), 20, "the engine's address")
        yield unit
    finally:
        unit.stop()
