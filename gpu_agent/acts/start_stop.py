"""Start an engine that does not run, and stop one that takes no work.

Each command is started once, whatever happens to the agent, which then goes on by waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from urllib.parse import urlsplit

from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.serving import command_problem, hindrance_of, wait_until_it_serves
from gpu_agent.acts.tools import EngineWork
from wire.acts import Start, Stop

_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 2.0
# A server that hands its port on is away for a moment.
_CLOSED_TRIES = 2
_BEGUN = "begun_ms"


async def start(work: EngineWork, request: Start) -> str:
    """Raises: NotDone."""
    if _BEGUN not in work.kept and not await hindrance_of(work):
        return "it serves already"
    work.tools.expect_restart(work.name, request.limit_seconds)
    begun_ms = await _run_once(work, work.policy.start_command, request.limit_seconds, "the start command")
    if problem := await wait_until_it_serves(lambda: hindrance_of(work), request.limit_seconds, "start"):
        raise problem
    return f"served after {_since_seconds(begun_ms):.0f} s"


async def stop(work: EngineWork, request: Stop) -> str:
    """Raises: NotDone."""
    if not work.engine.cordoned and _BEGUN not in work.kept:
        raise refused("not_cordoned", "it takes new requests; cordon it or its node first, and drain it")
    # That it is down is as it should be until somebody starts it.
    work.tools.expect_restart(work.name, math.inf)
    begun_ms = await _run_once(work, work.policy.stop_command, request.limit_seconds, "the stop command")
    await _until_closed(work.engine.url, request.limit_seconds)
    return f"nobody listens at its port after {_since_seconds(begun_ms):.0f} s"


async def _run_once(work: EngineWork, command: list[str], limit_seconds: int, what: str) -> int:
    """When it was begun, Unix time in ms: now, or by a former run of the agent. Raises: NotDone."""
    if _BEGUN in work.kept:
        return int(work.kept[_BEGUN])
    begun_ms = time.time_ns() // 1_000_000
    await work.keep({_BEGUN: begun_ms})
    if problem := await command_problem(command, limit_seconds, what):
        raise problem
    return begun_ms


async def _until_closed(url: str, limit_seconds: int) -> None:
    parts, closed = urlsplit(url), 0
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(limit_seconds):
            while closed < _CLOSED_TRIES:
                closed = 0 if await _listens(parts.hostname or "", port) else closed + 1
                await asyncio.sleep(_POLL_SECONDS if closed < _CLOSED_TRIES else 0)
    except TimeoutError as error:
        said = f"port {port} still answers {limit_seconds} s after the stop command"
        raise failed("did_not_stop", said) from error


async def _listens(host: str, port: int) -> bool:
    """Whether somebody may: who does not answer in time may be busy."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return True
    except (OSError, UnicodeError):
        # Refused, or an address that has gone with its container.
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _since_seconds(begun_ms: int) -> float:
    return max(0, time.time_ns() // 1_000_000 - begun_ms) / 1000
