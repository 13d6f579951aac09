"""`python -m gpu_agent.nvml.child`: NVML in a process of its own, so that what hangs in the driver hangs only here.

Each GPU has a thread: a call that never returns keeps that GPU silent, and no other. The process ends as soon as its
stdin does, whatever its threads are stuck in. `--library PATH`: another libnvidia-ml.so.1 than the loader finds.
`--simulated PATH`: simulated GPUs of this state file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

from gpu_agent.nvml.fields import POLLS, Poll
from gpu_agent.nvml.source import (
    LINE_LIMIT_BYTES,
    PARTS_LIMIT,
    PROCESSES_LIMIT,
    FieldValue,
    GpuSource,
    Identity,
    Part,
    Process,
    Unreadable,
    Unusable,
)

# Threads here call NVML and little else; the default is 8 MiB of address space each.
_STACK_BYTES = 512 * 1024
_XID_WAIT_SECONDS = 5.0
# NVML fails at once, over and over, while a watched GPU is lost.
_XID_FAILURE_PAUSE_SECONDS = 1.0
_REASON_CHARACTERS = 500
# How long a slow answer waits to tell how the GPU is connected, rather than with the next one. While one hangs, all do.
_CONNECTING_SECONDS = 0.05


class Out:
    """The agent's end of stdout, shared by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def tell(self, kind: str, **said: object) -> None:
        """One message of protocol.py."""
        line = json.dumps({"type": kind, **said}, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                # The agent is gone.
                os._exit(0)


class GpuThread:
    """Answers the asks about one GPU, one after the other."""

    def __init__(self, source: GpuSource, index: int, out: Out) -> None:
        # Number of an ask, and the poll classes that it wants.
        self.inbox: SimpleQueue[tuple[int, list[Poll]]] = SimpleQueue()
        self._topology: list[Part] = []
        self._connected = threading.Event()
        self._source, self._index, self._out = source, index, out
        self._watched = False

    def run(self) -> NoReturn:
        identity: Identity | None = None
        # NVML tells of no XID from before this, and the first ask may be an interval away.
        self._watch()
        while True:
            number, polls = self.inbox.get()
            if identity is None or "slow" in polls:
                identity = self._identify() or identity
            if not self._watched:
                self._watch()
            fields: dict[str, FieldValue] = {}
            for poll in polls:
                fields |= self._source.read(self._index, poll)
            lost = "lost" in fields.values()
            parts, processes = ([], []) if lost else (self._parts(polls), self._processes(polls))
            self._out.tell(
                "answer", number=number, gpu=self._index, at_ms=_now_ms(), fields=fields, identity=identity,
                parts=parts, processes=processes,
            )  # fmt: skip

    def connect(self, topology: list[Part]) -> None:
        """How the GPU is connected to the others, once that is known."""
        self._topology = topology
        self._connected.set()

    def _parts(self, polls: Sequence[Poll]) -> list[Part]:
        parts = [part for poll in polls for part in self._source.parts(self._index, poll)]
        if "slow" in polls and self._connected.wait(_CONNECTING_SECONDS):
            parts += self._topology
        return parts[:PARTS_LIMIT]

    def _processes(self, polls: Sequence[Poll]) -> list[Process]:
        """Those that hold most memory, where there are more than an answer has room for."""
        if "processes" not in polls:
            return []
        return sorted(self._source.processes(self._index), key=lambda process: -process[1])[:PROCESSES_LIMIT]

    def _identify(self) -> Identity | None:
        try:
            return self._source.identify(self._index)
        except Unreadable:
            # The fields say so, each with its reason.
            return None

    def _watch(self) -> None:
        try:
            self._source.watch(self._index)
        except Unreadable as error:
            self._out.tell("watching", gpu=self._index, reason=str(error)[:_REASON_CHARACTERS])
        else:
            self._watched = True
            self._out.tell("watching", gpu=self._index)


class Child:
    """NVML, opened once, and a thread for each GPU."""

    def __init__(self, open_source: Callable[[], GpuSource]) -> None:
        self._open_source = open_source
        self._out = Out()
        self._gpus: list[GpuThread] = []

    def run(self) -> NoReturn:
        # Opening NVML may hang as well, and must not keep the end of stdin from being seen.
        _start(self._open)
        while line := sys.stdin.buffer.readline(LINE_LIMIT_BYTES):
            try:
                ask = json.loads(line)
                gpu, number, polls = ask["gpu"], ask["number"], ask["polls"]
                if not POLLS.issuperset(polls):
                    raise ValueError(f"poll classes are {', '.join(sorted(POLLS))}")
                self._gpus[gpu].inbox.put((number, polls))
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                print(f"gpu_agent.nvml.child: passed over what is no ask of this node: {error}", file=sys.stderr)
        os._exit(0)

    def _open(self) -> None:
        try:
            source = self._open_source()
        except Unusable as error:
            self._out.tell("failed", reason=str(error)[:_REASON_CHARACTERS], absent=error.absent)
            os._exit(0)
        self._gpus = [GpuThread(source, index, self._out) for index in range(source.count)]
        # First of all: an agent passes over what a GPU tells that it does not know of yet.
        versions = {"driver_version": source.driver_version, "cuda_version": source.cuda_version}
        self._out.tell("ready", source=source.kind, gpus=source.count, **versions)
        for gpu in self._gpus:
            _start(gpu.run)
        _start(lambda: self._connect(source))
        while True:
            try:
                seen = source.next_xid(_XID_WAIT_SECONDS)
            except Unreadable:
                time.sleep(_XID_FAILURE_PAUSE_SECONDS)
            else:
                if seen is not None:
                    index, xid, instance = seen
                    self._out.tell("xid", gpu=index, xid=xid, at_ms=_now_ms(), gpu_instance=instance)

    def _connect(self, source: GpuSource) -> None:
        """How the GPUs are connected. It asks about pairs, so that one GPU that hangs would silence another here."""
        for index, gpu in enumerate(self._gpus):
            gpu.connect(source.topology(index))


def _start(work: Callable[[], object]) -> None:
    def run() -> None:
        try:
            work()
        except BaseException:
            # One thread less would be a GPU that is silent for ever: the agent starts another process.
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _opener(arguments: Sequence[str]) -> Callable[[], GpuSource]:
    # Imported late: a child holds only what it uses.
    match arguments:
        case ["--simulated", path]:
            from gpu_agent.nvml.simulated import SimulatedSource

            return lambda: SimulatedSource(Path(path))
        case [] | ["--library", _]:
            from gpu_agent.nvml.library import NvmlLibrary

            return lambda: NvmlLibrary(arguments[1] if arguments else "")
    raise SystemExit("usage: python -m gpu_agent.nvml.child [--library PATH | --simulated PATH]")


def main() -> NoReturn:
    opener = _opener(sys.argv[1:])
    threading.stack_size(_STACK_BYTES)
    Child(opener).run()


if __name__ == "__main__":
    main()
