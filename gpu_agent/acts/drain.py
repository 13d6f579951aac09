"""Wait until a cordoned engine has no request left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.tools import EngineWork, number
from gpu_agent.engines.look import Look
from wire.acts import Drain

_POLL_SECONDS = 1.0
# A gateway may send a last request while it learns of the cordon.
_EMPTY_LOOKS = 2


async def drain(work: EngineWork, request: Drain) -> str:
    """Raises: NotDone."""
    if not work.engine.cordoned:
        raise refused("not_cordoned", "it takes new requests; cordon it or its node first")
    await until_empty(work.look, request.limit_seconds)
    return "no request is running or waiting"


async def until_empty(look_once: Callable[[], Awaitable[Look]], limit_seconds: int) -> None:
    """Raises: NotDone."""
    empty, said = 0, "no look ended"
    try:
        async with asyncio.timeout(limit_seconds):
            while empty < _EMPTY_LOOKS:
                look = await look_once()
                left = _requests_left(look)
                empty = empty + 1 if left == (0, 0) else 0
                said = _said(look, left)
                if empty < _EMPTY_LOOKS:
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise failed("timeout", f"after {limit_seconds} s {said}") from error


def _requests_left(look: Look) -> tuple[int, int] | None:
    """Running and waiting; None where the engine does not say what runs."""
    if look.report.state != "up":
        return None
    running, waiting = number(look, "requests_running"), number(look, "requests_waiting")
    # Triton itself counts those that wait alone, and would look empty while it works.
    if running is None:
        raise failed("unknown_load", f"its metrics do not say what runs: {look.report.error or 'no such series'}")
    return int(running), int(waiting or 0)


def _said(look: Look, left: tuple[int, int] | None) -> str:
    if left is None:
        return f"it is down: {look.report.error}"
    return f"{left[0]} requests run and {left[1]} wait"
