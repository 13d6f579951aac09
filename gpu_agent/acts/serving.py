"""Does an engine serve, and the commands of the node's policy that start and end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gpu_agent.acts.calls import engine_calls
from gpu_agent.acts.command import run_command
from gpu_agent.acts.outcome import NotDone, failed
from gpu_agent.acts.tools import EngineWork, number

POLL_SECONDS = 0.5
STARTED = "process_start_time_seconds"
_SHOWN_CHARACTERS = 200
_OUTPUT_CHARACTERS = 700


class _Card(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Card]


async def command_problem(command: Sequence[str], limit_seconds: float, what: str) -> NotDone | None:
    """Run a command of the policy; why it did not do. `what` it is called in words, as `the restart command`."""
    try:
        ran = await run_command(command, limit_seconds)
    except OSError as error:
        return failed("command_failed", f"{what} cannot be run: {error}")
    if ran.status == 0:
        return None
    how = f"was ended after {limit_seconds} s" if ran.status is None else f"ended with status {ran.status}"
    said = f", and wrote last: {ran.output[-_OUTPUT_CHARACTERS:]}" if ran.output else ""
    return failed("command_failed", f"{what} {how}{said}")


async def wait_until_it_serves(
    hindrance: Callable[[], Awaitable[str]], limit_seconds: float, since: str
) -> NotDone | None:
    """Why it does not serve so long after its `since`, as `start`."""
    said = "no look ended"
    try:
        async with asyncio.timeout(limit_seconds):
            while said := await hindrance():  # noqa: ASYNC110 - an engine tells nobody that it serves
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return failed("did_not_serve", f"it does not serve {limit_seconds} s after its {since}: {said}")
    return None


async def hindrance_of(work: EngineWork, former_start: str | None = None) -> str:
    """What the engine lacks to serve; empty: nothing. `former_start`: when the process began that must be gone."""
    look = await work.look()
    if look.report.state != "up":
        return str(look.report.error)
    started = number(look, STARTED)
    if started is not None and str(started) == former_start:
        return "the process that answers is the one from before"
    if work.engine.kind != "vllm":
        return ""
    try:
        async with engine_calls(work) as calls:
            names = [card.id for card in (await calls.read("/v1/models", _Models)).data]
    except NotDone as error:
        return error.detail
    if work.engine.served_model and work.engine.served_model not in names:
        return f"it serves {', '.join(names)[:_SHOWN_CHARACTERS]}, not {work.engine.served_model}"
    return ""
