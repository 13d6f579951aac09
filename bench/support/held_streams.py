"""Many streams held open by a process of their own, while a benchmark looks at what stands before their engine."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

_BEGIN_SECONDS = 120


@asynccontextmanager
async def held_streams(
    port: int, path: str, body: Path, key: str, streams: int, seconds: float
) -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
    """All are open at the block's begin, and for `seconds`; the task then gives what `stream_clients` prints.

    Raises: RuntimeError where one of them was refused or cut.
    """
    options = ["--port", str(port), "--path", path, "--body", str(body)]
    options += ["--streams", str(streams), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.support.stream_clients", *options, stdin=PIPE, stdout=PIPE
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("both were asked to be pipes")
    process.stdin.write(f"{key}\n".encode())
    try:
        begun = await asyncio.wait_for(process.stdout.readline(), _BEGIN_SECONDS)
        if not begun:
            raise RuntimeError(f"{streams} streams did not begin at port {port}")
        yield asyncio.create_task(_figures(process.stdout, seconds))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _figures(said: asyncio.StreamReader, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(await asyncio.wait_for(said.readline(), seconds + _BEGIN_SECONDS))
    if figures["cut"]:
        raise RuntimeError(f"{figures['cut']} streams were cut")
    return figures
