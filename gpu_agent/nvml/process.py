"""The NVML child as the agent holds it: started, spoken to, and let go of without ever waiting for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence

import msgspec

from gpu_agent.nvml.protocol import LINE_LIMIT_BYTES, Ask, Told, decode_told, encode_line

# A child stuck in the driver survives SIGKILL until its call returns. More of them would each hold NVML open.
MAX_LEFTOVERS = 2
# glibc would give each thread a heap of its own, which only costs memory: one thread runs Python at a time.
# And it would keep the room into which modules were read, unless that is given back to the kernel.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "16384"}


class ChildBroken(Exception):
    """The child said what it may not say; the message names it."""


class NvmlChild:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, arguments: Sequence[str], lock: int | None = None) -> NvmlChild:
        """`lock`: a descriptor that it shares, and holds for as long as it lives. Raises: OSError."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gpu_agent.nvml.child", *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_LIMIT_BYTES,
                env={**os.environ, **_ENVIRONMENT}, pass_fds=() if lock is None else (lock,),
            )
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while the process is there."""
        return self._process.returncode

    def ask(self, ask: Ask) -> None:
        """Send one ask. A child that is gone is seen where its answers are read."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(encode_line(ask))

    async def told(self) -> AsyncIterator[Told]:
        """What the child says, until it ends. Raises: ChildBroken."""
        stdout = self._process.stdout
        while stdout is not None:
            try:
                line = await stdout.readline()
            except ValueError as error:
                raise ChildBroken(f"it said more than {LINE_LIMIT_BYTES} bytes in one line") from error
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_told(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ChildBroken(f"it said what cannot be understood: {error}") from error

    def kill(self) -> None:
        """End it, as far as that can be done: one that is stuck in the driver stays until its call returns."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            # Not by Process.kill, which collects the exit status of one that has ended before asyncio can.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def ended(self, timeout_seconds: float) -> bool:
        """Whether the process is gone, after that time at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                # What it still said is read to its end, and with it the pipes are closed.
                await self._process.communicate()
        return self.exit_status is not None
