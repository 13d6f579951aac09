"""`python -m gpu_agent.nvml.child`: NVML in a process of its own, so that what hangs in the driver hangs only here.

Each GPU has a thread: a call that never returns keeps that GPU silent, and no other. The process ends as soon as its
stdin does, whatever its threads are stuck in.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import msgspec

from gpu_agent.nvml.protocol import (
    LINE_LIMIT_BYTES,
    Answer,
    Ask,
    Failed,
    Ready,
    Told,
    Watching,
    XidSeen,
    decode_ask,
    encode_line,
)
from gpu_agent.nvml.readings import GpuIdentity
from gpu_agent.nvml.source import GpuSource, Unreadable, Unusable

# Threads here call NVML and little else; the default is 8 MiB of address space each.
_STACK_BYTES = 512 * 1024
_XID_WAIT_SECONDS = 5.0
# NVML fails at once, over and over, while a watched GPU is lost.
_XID_FAILURE_PAUSE_SECONDS = 1.0
_REASON_CHARACTERS = 500


class Out:
    """The agent's end of stdout, shared by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def tell(self, message: Told) -> None:
        line = encode_line(message)
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
        self.inbox: SimpleQueue[Ask] = SimpleQueue()
        self._source, self._index, self._out = source, index, out
        self._watched = False

    def run(self) -> NoReturn:
        identity: GpuIdentity | None = None
        while True:
            ask = self.inbox.get()
            if identity is None or ask.slow:
                identity = self._identify() or identity
            if not self._watched:
                self._watch()
            fields = self._source.read(self._index, "fast")
            if ask.slow:
                fields |= self._source.read(self._index, "slow")
            self._out.tell(Answer(ask.number, self._index, _now_ms(), fields, identity))

    def _identify(self) -> GpuIdentity | None:
        try:
            return self._source.identify(self._index)
        except Unreadable:
            # The fields say so, each with its reason.
            return None

    def _watch(self) -> None:
        try:
            self._source.watch(self._index)
        except Unreadable as error:
            self._out.tell(Watching(self._index, str(error)[:_REASON_CHARACTERS]))
        else:
            self._watched = True
            self._out.tell(Watching(self._index))


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
                ask = decode_ask(line)
                self._gpus[ask.gpu].inbox.put(ask)
            except (msgspec.MsgspecError, IndexError) as error:
                print(f"gpu_agent.nvml.child: passed over what is no ask of this node: {error}", file=sys.stderr)
        os._exit(0)

    def _open(self) -> None:
        try:
            source = self._open_source()
        except Unusable as error:
            self._out.tell(Failed(str(error)[:_REASON_CHARACTERS], error.absent))
            os._exit(0)
        self._gpus = [GpuThread(source, index, self._out) for index in range(source.count)]
        for gpu in self._gpus:
            _start(gpu.run)
        self._out.tell(Ready(source.kind, source.driver_version, source.count))
        while True:
            try:
                seen = source.next_xid(_XID_WAIT_SECONDS)
            except Unreadable:
                time.sleep(_XID_FAILURE_PAUSE_SECONDS)
            else:
                if seen is not None:
                    index, xid = seen
                    self._out.tell(XidSeen(index, xid, _now_ms()))


def _start(work: Callable[[], object]) -> None:
    def run() -> None:
        try:
            work()
        except BaseException:
            # One thread less would be a GPU that is silent for ever: the agent starts another process.
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _opener(arguments: argparse.Namespace) -> Callable[[], GpuSource]:
    # Imported late: a child holds only what it uses.
    if arguments.simulated is not None:
        from gpu_agent.nvml.simulated import SimulatedSource

        return lambda: SimulatedSource(arguments.simulated)
    from gpu_agent.nvml.library import NvmlLibrary

    return lambda: NvmlLibrary(arguments.library)


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m gpu_agent.nvml.child", description=__doc__)
    parser.add_argument("--library", default="", metavar="PATH", help="another libnvidia-ml.so.1 than the loader finds")
    parser.add_argument("--simulated", type=Path, metavar="PATH", help="read simulated GPUs from this state file")
    arguments = parser.parse_args()
    threading.stack_size(_STACK_BYTES)
    Child(_opener(arguments)).run()


if __name__ == "__main__":
    main()
