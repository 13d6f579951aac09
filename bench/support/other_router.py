"""Another open gateway to put the same load on: vllm-router (Apache-2.0), installed for the benchmark's time alone."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.support.processes import running
from controlplane.demo.ports import free_port

NAME = "vllm-router"
_INSTALL_SECONDS = 180


async def installed(folder: Path) -> Path | None:
    """The Python that has it; None, and a printed word why, where no package index gives it."""
    environment = folder / NAME
    python = environment / "bin" / "python"
    for command in (
        (sys.executable, "-m", "venv", str(environment)),
        (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NAME),
    ):
        said = await _said(*command)
        if said is not None:
            print(f"{NAME} is not measured, since it cannot be installed: {said}")
            return None
    return python


async def _said(*command: str) -> str | None:
    """None: the command did what it should."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _INSTALL_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it took longer than {_INSTALL_SECONDS} s"
    lines = output.decode(errors="replace").strip().splitlines() or ["no word"]
    return lines[-1] if process.returncode else None


@asynccontextmanager
async def other_router(python: Path, engine_port: int, port: int, log: Path) -> AsyncIterator[Process]:
    """It routes to one engine, with as many requests at once as the benchmark holds streams."""
    options = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://127.0.0.1:{engine_port}"]
    options += ["--policy", "round_robin", "--max-concurrent-requests", "10000", "--log-level", "warning"]
    options += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    async with running(log, "vllm_router.launch_router", *options, python=python) as process:
        yield process
