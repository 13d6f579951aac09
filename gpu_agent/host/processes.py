"""Which processes of this node are an engine's: those that listen on its port, and what they have started."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_agent.host.proc import PROC, Stat, boot_time_ms, command_line, open_sockets, pids, stat_of, ticks_ms
from gpu_agent.host.roles import FORWARDERS, MANAGERS, Role, launches, role_of

# Looking through the open files of all processes takes some 100 ms on a node of 3,000. For a socket that was searched
# for in vain that is done rarely; one that is new, as after each restart of an engine, is not kept waiting.
_SEARCH_SECONDS, _NEW_SEARCH_SECONDS = 60, 5
# A process id may be given again between two refreshes; then its parent is known wrongly for so many of them.
_REFRESHES_PER_FULL_READ = 20
_WORDS, _WORD_CHARACTERS = 1000, 4000


@dataclass(frozen=True)
class EngineProcesses:
    """Processes of one engine by id. `command_line`, `started_at_ms`: of its first listener; empty, None: hidden."""

    stats: dict[int, Stat]
    roles: dict[int, Role]
    command_line: list[str]
    started_at_ms: int | None


@dataclass(frozen=True)
class _Known:
    """The result of one refresh, replaced as a whole: readers of other threads see the one before or this one."""

    engines: dict[str, EngineProcesses] = field(default_factory=dict)
    engine_of: dict[int, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


class ProcessMap:
    """`refresh` reads /proc, and belongs into a thread; all else answers from memory what the last refresh found.

    Ids are those of this process' PID namespace. An engine in another one, or whose open files only a more privileged
    reader may see, has no processes here, and its entry of `problems` says so. `clock`: seconds, without jumps.
    """

    def __init__(self, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock = proc, clock
        self._known = _Known()
        # Of every process of the node.
        self._parents: dict[int, int] = {}
        self._refreshes = 0
        # Processes that hold a listening socket, with their start, by its inode.
        self._holders: dict[str, dict[int, int]] = {}
        self._searched_seconds = float("-inf")
        # Sockets that the last search was for.
        self._searched: set[str] = set()
        # Sockets that the last search found with nobody, and whether it was shown all.
        self._unheld: set[str] = set()
        self._denied = False
        # The first listener of each engine with its start, and what is known of it.
        self._first: dict[tuple[int, int], tuple[list[str], int | None]] = {}

    @property
    def engines(self) -> Mapping[str, EngineProcesses]:
        """Engines whose processes are known, by name."""
        return self._known.engines

    @property
    def problems(self) -> Mapping[str, str]:
        """Why the processes of an engine that listens are not known, by engine."""
        return self._known.problems

    def engine_of(self, pid: int) -> str | None:
        return self._known.engine_of.get(pid)

    def pids(self, engine: str) -> frozenset[int]:
        """Empty where they are not known."""
        found = self._known.engines.get(engine)
        return frozenset(found.stats) if found else frozenset()

    def command_line(self, engine: str) -> list[str] | None:
        """The words of the listening process, secrets among them; at most 1,000. None where they are not known."""
        found = self._known.engines.get(engine)
        return list(found.command_line) if found and found.command_line else None

    def started_at_ms(self, engine: str) -> int | None:
        """Unix time at which the listening process was started; the same at every call for one process."""
        found = self._known.engines.get(engine)
        return found.started_at_ms if found else None

    def refresh(self, kinds: Mapping[str, str], listening: Mapping[str, Collection[str]]) -> None:
        """`kinds`: of each engine. `listening`: inodes of the sockets that listen on its port. Raises: OSError."""
        self._learn_parents()
        inodes = {inode for of_engine in listening.values() for inode in of_engine}
        self._find_holders(inodes)
        holders = {name: self._holders_of(of_engine) for name, of_engine in listening.items()}
        problems = {name: self._problem(of_engine, holders[name]) for name, of_engine in listening.items()}
        holders = {name: of_engine for name, of_engine in holders.items() if of_engine and not problems[name]}
        engines = {name: self._engine(kinds[name], found) for name, found in self._members(kinds, holders).items()}
        first = {min((stat.started_ticks, pid) for pid, stat in of.items()) for of in holders.values()}
        self._first = {key: value for key, value in self._first.items() if key in first}
        engine_of = {pid: name for name, engine in engines.items() for pid in engine.stats}
        self._known = _Known(engines, engine_of, {name: text for name, text in problems.items() if text})

    def _learn_parents(self) -> None:
        present = set(pids(self._proc))
        again = self._refreshes % _REFRESHES_PER_FULL_READ == 0
        self._refreshes += 1
        known = {} if again else {pid: parent for pid, parent in self._parents.items() if pid in present}
        for pid in present - known.keys():
            if stat := stat_of(self._proc, pid):
                known[pid] = stat.parent
        self._parents = known

    def _find_holders(self, inodes: set[str]) -> None:
        """Search for those that hold a socket which no living process is known to hold."""
        for inode, holders in list(self._holders.items()):
            alive = {pid: started for pid, started in holders.items() if self._alive(pid, started)}
            if inode in inodes and alive:
                self._holders[inode] = alive
            else:
                del self._holders[inode]
        now_seconds = self._clock()
        wanted = inodes - self._holders.keys()
        wait_seconds = _SEARCH_SECONDS if wanted <= self._searched else _NEW_SEARCH_SECONDS
        if wanted and now_seconds >= self._searched_seconds + wait_seconds:
            self._searched_seconds, self._searched = now_seconds, wanted
            self._search(wanted)

    def _search(self, wanted: set[str]) -> None:
        self._denied = False
        managed: set[str] = set()
        for pid in self._parents:
            try:
                held = wanted.intersection(open_sockets(self._proc, pid))
            except PermissionError:
                self._denied = True
                continue
            if not held or (stat := stat_of(self._proc, pid)) is None:
                continue
            if stat.name in MANAGERS:
                managed |= held
                continue
            for inode in held:
                self._holders.setdefault(inode, {})[pid] = stat.started_ticks
        self._unheld = wanted - self._holders.keys() - managed

    def _alive(self, pid: int, started_ticks: int) -> bool:
        stat = stat_of(self._proc, pid)
        return stat is not None and stat.started_ticks == started_ticks

    def _holders_of(self, inodes: Iterable[str]) -> dict[int, Stat]:
        held_by = {pid for inode in inodes for pid in self._holders.get(inode, {})}
        return {pid: stat for pid in held_by if (stat := stat_of(self._proc, pid))}

    def _problem(self, inodes: Collection[str], holders: Mapping[int, Stat]) -> str:
        if inodes and not holders and self._unheld.issuperset(inodes):
            if self._denied:
                return "who listens on its port is hidden: that needs the capabilities SYS_PTRACE and DAC_READ_SEARCH"
            return "no process of this PID namespace listens on its port: that needs the host's (hostPID)"
        forwarders = {stat.name for stat in holders.values()} & FORWARDERS
        return f"{forwarders.pop()} listens for it, in another network namespace" if forwarders else ""

    def _members(
        self, kinds: Mapping[str, str], holders: Mapping[str, Mapping[int, Stat]]
    ) -> dict[str, tuple[Mapping[int, Stat], dict[int, Stat]]]:
        """Of each engine: the processes that hold its socket, and all of its processes."""
        children = defaultdict(list)
        for pid, parent in self._parents.items():
            children[parent].append(pid)
        roots = {name: {self._root(kinds[name], pid) for pid in of_engine} for name, of_engine in holders.items()}
        all_roots = set().union(*roots.values())
        found: dict[str, tuple[Mapping[int, Stat], dict[int, Stat]]] = {}
        for name, own_roots in roots.items():
            other_roots = all_roots - own_roots
            members: dict[int, Stat] = {}
            waiting = list(own_roots)
            while waiting:
                pid = waiting.pop()
                if pid not in members and (stat := stat_of(self._proc, pid)):
                    members[pid] = stat
                    # One engine may have started another.
                    waiting += (child for child in children[pid] if child not in other_roots)
            found[name] = holders[name], members
        return found

    def _root(self, kind: str, pid: int) -> int:
        parent = self._parents.get(pid, 0)
        while parent > 1 and (stat := stat_of(self._proc, parent)) and launches(kind, stat.name):
            pid, parent = parent, stat.parent
        return pid

    def _engine(self, kind: str, found: tuple[Mapping[int, Stat], dict[int, Stat]]) -> EngineProcesses:
        holders, members = found
        started_ticks, pid = min((stat.started_ticks, pid) for pid, stat in holders.items())
        words, started_at_ms = self._first_listener(started_ticks, pid)
        roles = {
            other: role_of(kind, stat.name, first=other == pid, listens=other in holders)
            for other, stat in members.items()
        }
        return EngineProcesses(members, roles, words, started_at_ms)

    def _first_listener(self, started_ticks: int, pid: int) -> tuple[list[str], int | None]:
        """Read once: the clock from which the boot's time is derived may be set."""
        if (known := self._first.get((started_ticks, pid))) is None:
            words = [word[:_WORD_CHARACTERS] for word in command_line(self._proc, pid)[:_WORDS]]
            boot_ms = boot_time_ms(self._proc)
            known = words, None if boot_ms is None else boot_ms + ticks_ms(started_ticks)
            self._first[started_ticks, pid] = known
        return known
