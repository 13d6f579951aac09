"""One look at the node around its GPUs, every now and then; no part of it can hold up the agent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpu_agent import settings
from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.host.disks import Disks
from gpu_agent.host.engine_usage import EngineUsage, connection_samples
from gpu_agent.host.namespaces import Namespaces
from gpu_agent.host.ports import Place, engine_places
from gpu_agent.host.proc import PROC, open_files
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.sockets import Sockets, TooManySockets, read_sockets
from gpu_agent.host.system import ephemeral_range, system_samples
from gpu_agent.policy import NodePolicy
from gpu_agent.samples import Sample
from wire.snapshot import NodeEngine

log = logging.getLogger("headworks.agent.host")
# A process whose memory map is locked, as one may be that waits for a hung GPU, keeps those waiting who read of it.
_ANSWER_SECONDS = 5.0
# What a report takes of problems.
_PROBLEMS_LIMIT, _PROBLEM_CHARACTERS = 64, 2000


@dataclass(frozen=True)
class HostOptions:
    """`disk_paths`: folders whose disks are watched."""

    interval_seconds: float
    disk_paths: tuple[str, ...]
    proc: Path = PROC

    @classmethod
    def from_settings(cls, state_dir: Path, policy: NodePolicy) -> HostOptions:
        # The spools lie in it.
        state = str(state_dir.absolute())
        models = (engine.model_path for engine in policy.engines.values() if engine.model_path)
        return cls(
            interval_seconds=settings.HOST_INTERVAL_SECONDS.read(),
            disk_paths=tuple(dict.fromkeys((state, *settings.DISK_PATHS.read(), *models))),
        )


class HostWatch:
    """Gives samples, and keeps the map of processes. `problems`: what cannot be told and why, by what it is of."""

    def __init__(self, options: HostOptions, processes: ProcessMap) -> None:
        self._proc, self._processes = options.proc, processes
        self._usage = EngineUsage(lambda pid: open_files(options.proc, pid))
        self._namespaces = Namespaces(options.proc)
        self._disks = Disks(options.disk_paths)
        self._apart = Apart[list[Sample]]("host")
        self._of_engines: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    async def look(self, engines: Mapping[str, NodeEngine]) -> list[Sample]:
        """What is so now; what does not answer in time is left out."""
        found = await self._disks.samples()
        problems = {f"disk {path}": text for path, text in self._disks.problems.items()}
        try:
            found += await self._apart.run(lambda: self._read(engines), _ANSWER_SECONDS)
        except (OSError, NoAnswer, TooManySockets) as error:
            problems["/proc"] = str(error)
        problems |= {f"engine {name}": text for name, text in self._of_engines.items() if name in engines}
        _tell(self.problems, problems)
        self.problems = problems
        return found

    def problems_said(self) -> list[str]:
        """As far as a node report has room for them."""
        said = (f"{what}: {text}" for what, text in sorted(self.problems.items()))
        return [problem[:_PROBLEM_CHARACTERS] for problem in islice(said, _PROBLEMS_LIMIT)]

    def _read(self, engines: Mapping[str, NodeEngine]) -> list[Sample]:
        """In a thread of its own. Raises: OSError, TooManySockets."""
        places = engine_places(engines, self._proc, self._namespaces.of)
        ephemeral = ephemeral_range(self._proc)
        sockets = self._sockets(places.by_engine.values(), ephemeral)
        of_engine = {
            name: sockets[place.folder].by_port[place.port]
            for name, place in places.by_engine.items()
            if place.folder in sockets
        }
        self._processes.refresh(
            {name: engine.kind for name, engine in engines.items()},
            {name: its.listening for name, its in of_engine.items()},
        )
        self._of_engines = {**places.problems, **self._processes.problems}
        found = system_samples(self._proc)
        if ephemeral:
            used = sockets[self._proc].ephemeral_ports
            found.append(Sample("headworks_host_ephemeral_ports_used", {}, float(used), 0))
            found.append(Sample("headworks_host_ephemeral_ports_limit", {}, float(len(ephemeral)), 0))
        for name, its in of_engine.items():
            found += connection_samples(name, its)
        return found + self._usage.samples(self._processes.engines)

    def _sockets(self, places: Iterable[Place], ephemeral: range) -> dict[Path, Sockets]:
        """Of this network namespace, and of those that engines are in."""
        ports: dict[Path, set[int]] = {self._proc: set()}
        for folder, port in places:
            ports.setdefault(folder, set()).add(port)
        found: dict[Path, Sockets] = {}
        for folder in ports:
            try:
                found[folder] = read_sockets(folder, ports[folder], ephemeral)
            except OSError:
                if folder == self._proc:
                    raise
                # The process through which another one is seen has just ended.
        return found


def _tell(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Each problem once, and again when it is another or has come back."""
    for what, text in now.items():
        if before.get(what) != text:
            log.warning("%s: %s", what, text)
