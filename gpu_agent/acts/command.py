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
_CHUNK_BYTES = 65_536
_TERMINATE_SECONDS = 2.0


@dataclass(frozen=True)
class Ran:
    """`status`: as of subprocess; None: it was ended when its time was over. `output`: the end of what it wrote."""

    status: int | None
    output: str


async def run_command(command: Sequence[str], limit_seconds: float) -> Ran:
    """Run it without a shell, in a process group of its own, until it exits. Raises: OSError where it cannot start.

    It is not ended with the agent: half a restart is worse than one that nobody watches. Its output is closed when it
    has exited, so what it leaves running must write elsewhere.
    """
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        # Apart, since the program may stand on a disk that hangs.
        process = await Apart[subprocess.Popen[bytes]]("command").run(lambda: _start(command, writer), limit_seconds)
    except NoAnswer:
        os.close(reader)
        return Ran(None, "it could not even be started")
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    loop, tail = asyncio.get_running_loop(), bytearray()
    loop.add_reader(reader, _read, reader, tail)
    try:
        status: int | None = await _exited(process, limit_seconds)
    except TimeoutError:
        await _end(process)
        status = None
    finally:
        _read(reader, tail)
        loop.remove_reader(reader)
        os.close(reader)
    return Ran(status, " ".join(tail.decode("utf-8", "replace").split()))


def _start(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
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


def _read(reader: int, tail: bytearray) -> None:
    """What can be read now; of all that was read, the end is kept."""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reader, _CHUNK_BYTES):
            tail += chunk
            del tail[:-_TAIL_BYTES]
