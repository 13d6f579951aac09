"""Processes of a benchmark, ended with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path


@asynccontextmanager
async def running(
    log: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdout: int = DEVNULL,
    python: str | Path = sys.executable,
) -> AsyncIterator[Process]:
    """A process whose words go to a file: a pipe that nobody reads would stop it when it is full."""
    with log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(
            python, "-m", *arguments, stdin=DEVNULL, stdout=stdout, stderr=words,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            # One that is stopped ends only when it goes on.
            process.send_signal(signal.SIGCONT)
            process.terminate()
        await process.wait()


@contextmanager
def ending(process: subprocess.Popen[bytes], patience_seconds: float) -> Iterator[None]:
    """End a process after the block: asked first, killed if it stays."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    return _cpu_seconds(Path(f"/proc/{pid}/stat"))


def main_thread_cpu_seconds(pid: int) -> float:
    """The part of `cpu_seconds` that the first thread took: the event loop, where there is one."""
    return _cpu_seconds(Path(f"/proc/{pid}/task/{pid}/stat"))


def _cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
