"""What an engine's processes hold and use, by their role, and the connections at its port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from gpu_agent.host.proc import Files, Stat
from gpu_agent.host.processes import EngineProcesses
from gpu_agent.host.sockets import STATES, PortSockets
from gpu_agent.samples import Sample

_PREFIX = "headworks_engine_process_"


class EngineUsage:
    """Keeps processor time counting up while processes come and go. `files_of` tells a process' open files."""

    def __init__(self, files_of: Callable[[int], Files | None]) -> None:
        self._files_of = files_of
        # Since it was first seen, by engine and role.
        self._cpu_seconds: dict[tuple[str, str], float] = {}
        # Of each process at the last look, by id and start.
        self._seen: dict[tuple[int, int], float] = {}

    def samples(self, engines: Mapping[str, EngineProcesses]) -> list[Sample]:
        seen: dict[tuple[int, int], float] = {}
        found: list[Sample] = []
        totals: dict[tuple[str, str], float] = {}
        for name, engine in engines.items():
            by_role: dict[str, dict[int, Stat]] = defaultdict(dict)
            for pid, stat in engine.stats.items():
                by_role[engine.roles[pid]][pid] = stat
            for role, stats in by_role.items():
                total = self._cpu_seconds.get((name, role), 0.0)
                for pid, stat in stats.items():
                    process = pid, stat.started_ticks
                    total += max(0.0, stat.cpu_seconds - self._seen.get(process, 0.0))
                    seen[process] = stat.cpu_seconds
                totals[name, role] = total
                found += self._of_role({"engine": name, "role": role}, stats, total)
        self._seen, self._cpu_seconds = seen, totals
        return found

    def _of_role(self, labels: dict[str, str], stats: Mapping[int, Stat], cpu_seconds: float) -> Iterable[Sample]:
        yield Sample(f"{_PREFIX}cpu_seconds_total", labels, cpu_seconds, 0)
        yield Sample(f"{_PREFIX}resident_bytes", labels, float(sum(stat.resident_bytes for stat in stats.values())), 0)
        yield Sample(f"{_PREFIX}threads", labels, float(sum(stat.threads for stat in stats.values())), 0)
        files = [files for pid in stats if (files := self._files_of(pid))]
        if files:
            # A limit is one process' own, so the one that is nearest to it counts.
            nearest = max(files, key=lambda each: each.open / max(1, each.limit))
            yield Sample(f"{_PREFIX}open_fds", labels, float(nearest.open), 0)
            yield Sample(f"{_PREFIX}fd_limit", labels, float(nearest.limit), 0)


def connection_samples(name: str, sockets: PortSockets) -> list[Sample]:
    """None for a port at which nothing listens: the engine is down, or in another network namespace."""
    if not sockets.listening:
        return []
    return [
        Sample("headworks_engine_connections", {"engine": name, "state": state}, float(sockets.connections[state]), 0)
        for state in STATES
    ]
