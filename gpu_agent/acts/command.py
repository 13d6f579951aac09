"""Runs a command that the node's policy names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.settings import SETTINGS

_TAIL_BYTES = 2000
# What a pipe holds. One that is filled without end is emptied so often, and then costs next to nothing.
_CHUNK_BYTES = 65_536
_PAUSE_SECONDS = 0.01
_TERMINATE_SECONDS = 2.0


@dataclass(frozen=True)
class Ran:
    """`status`: as of subprocess; None: it was ended when its time was over. `output`: the end of what it wrote."""

    status: int | None
    output: str


async def run_command(command: Sequence[str], limit_seconds: float, *, held: Sequence[int] = ()) -> Ran:
    """Run it without a shell, in a process group of its own, until it exits. Raises: OSError where it cannot start.

    `held`: descriptors that it inherits.

    It is not ended with the agent: half a restart is worse than one that nobody watches. Its output is closed when it
    has exited, so what it leaves running must write elsewhere.
    """
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        # Apart, since the program may stand on a disk that hangs.
        process = await Apart[subprocess.Popen[bytes]]("command").run(
            lambda: _start(command, writer, held), limit_seconds
        )
    except NoAnswer:
        os.close(reader)
        return Ran(None, "it could not even be started")
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    tail = _Tail(reader)
    try:
        status: int | None = await _exited(process, limit_seconds)
    except TimeoutError:
        # It may have ended while this process stood still.
        status = process.poll()
        if status is None:
            await _end(process)
    finally:
        tail.close()
    return Ran(status, tail.text)


def _start(command: Sequence[str], output: int, held: Sequence[int]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    for setting in SETTINGS:
        # The agent's own, a join token among them.
        environment.pop(setting.name, None)
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        pass_fds=held,
        # SIGPIPE stays ignored, as systemd has it: whatever writes after the agent has gone is not killed for it.
        restore_signals=False,
        env=environment,
        cwd="/",
    )


async def _exited(process: subprocess.Popen[bytes], limit_seconds: float) -> int:
    """The exit status. Raises: TimeoutError."""
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    # Not asyncio's own process, which is killed when the event loop ends.
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, exited.set)
    try:
        async with asyncio.timeout(limit_seconds):
            await exited.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


async def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await _exited(process, _TERMINATE_SECONDS)
            return


class _Tail:
    """The end of what comes out of a pipe, which it closes."""

    def __init__(self, reader: int) -> None:
        self._reader, self._kept = reader, bytearray()
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._follow()

    @property
    def text(self) -> str:
        """On one line."""
        return " ".join(self._kept.decode("utf-8", "replace").split())

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._reader)
        self._read()
        os.close(self._reader)

    def _follow(self) -> None:
        self._loop.add_reader(self._reader, self._take)

    def _take(self) -> None:
        self._loop.remove_reader(self._reader)
        # Nobody follows a pipe that was closed: it would be ready to be read for ever.
        if self._read():
            self._pause = self._loop.call_later(_PAUSE_SECONDS, self._follow)

    def _read(self) -> bool:
        """Read once. Whether more may come."""
        try:
            chunk = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._kept += chunk
        del self._kept[:-_TAIL_BYTES]
        return bool(chunk)
