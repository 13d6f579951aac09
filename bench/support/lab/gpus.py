"""The lab's simulated GPUs: which engine's process is on which of them, and what happens to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.support.control_plane import wait_for
from bench.support.lab.engines import LabEngines
from bench.support.lab.plan import ENGINES, NODES
from bench.support.processes import ending
from simulator.gpu import fault
from simulator.gpu.state import MachineState, Process, StateFile, healthy_machine

# What an engine takes at its start, of an H200.
_ENGINE_BYTES = 120 * 2**30


class LabGpus:
    """A state file a node (simulator/gpu/STATE.md), which a driver keeps at work as its engines are.

    They are boards without NVLink, which is well as long as no engine needs two of them: agents learn how GPUs are
    connected once, when they open NVML.
    """

    def __init__(self, folder: Path, engines: LabEngines) -> None:
        self._engines = engines
        # By engine, of those that work on more GPUs than one.
        self.tensor_parallel: dict[str, int] = {}
        self.files = {node: StateFile(folder / "gpus" / f"{node}.json") for node in NODES}

    def start(self, stack: ExitStack, folder: Path) -> None:
        for node, file in self.files.items():
            here = [name for name, engine in ENGINES.items() if engine.node == node]
            machine = healthy_machine(sum(len(ENGINES[name].gpus) for name in here), name=node)
            for index in range(len(machine.gpus)):
                fault.unlink(machine, index)
            file.create(machine)
            argv = [sys.executable, "-m", "simulator.gpu.drive", str(file.path), "--name", node]
            for name in here:
                argv += ["--engine-url", self._engines.urls[name]]
            log = stack.enter_context((folder / f"gpus-{node}.log").open("wb"))
            stack.enter_context(ending(subprocess.Popen(argv, stdout=log, stderr=log), 10))
        self._engines.on_new_process = self.show_processes
        self.show_processes()
        wait_for(lambda: all(file.path.exists() for file in self.files.values()), "the simulated GPUs")

    def show_processes(self) -> None:
        """Each engine's process holds memory of its first GPU, or of as many as it works on. Strangers stay."""
        for name, engine in ENGINES.items():
            pid = self._engines.pid(name)
            with self.files[engine.node].change() as machine:
                for place, index in enumerate(engine.gpus):
                    gpu = machine.gpus[index]
                    strangers = [each for each in gpu.processes if each.pid == fault.STRANGER_PID]
                    mine = pid is not None and place < self.tensor_parallel.get(name, 1)
                    gpu.processes = [*strangers, *([Process(pid, _ENGINE_BYTES)] if mine and pid else ())]

    def happen(self, node: str, indexes: Sequence[int], what: Callable[[MachineState, int], None]) -> None:
        with self.files[node].change() as machine:
            for index in indexes:
                what(machine, index)

    def recover(self) -> None:
        for file in self.files.values():
            with file.change() as machine:
                for index in range(len(machine.gpus)):
                    fault.recover(machine, index)
                    fault.unlink(machine, index)
