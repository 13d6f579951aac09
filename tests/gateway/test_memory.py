"""A request that has ended is forgotten, however it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bench.support.memory import resident_mib
from tests.gateway.fleet import RunningGateway, ScriptedEngine, chat

PROMPT_BYTES = 300_000
REQUESTS = 150
# What is kept of every request would be as much again as its body: 45 MB.
GROWTH_MIB = 15

Ask = Callable[[RunningGateway, ScriptedEngine], Awaitable[None]]


async def whole(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    assert (await gateway.call(chat("x" * PROMPT_BYTES)))[0] == 200


async def stream(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    async with gateway.post(chat("x" * PROMPT_BYTES, stream=True)) as answer:
        assert b"[DONE]" in await answer.read()


async def refused(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    assert (await gateway.refusal(chat("x" * PROMPT_BYTES, n=-1)))[0] == 400


async def left(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    engine.behave = engine.one_token_then_silence
    async with gateway.post(chat("x" * PROMPT_BYTES, stream=True)) as answer:
        await answer.content.readany()
        answer.close()
    await gateway.until_left(engine)


@pytest.mark.parametrize("ask", [whole, stream, refused, left])
async def test_memory_does_not_grow_with_requests(gateway: RunningGateway, engine: ScriptedEngine, ask: Ask):
    content = gateway.control.content
    content["models"]["acme/small-8b"]["max_context_tokens"] = 10 * PROMPT_BYTES
    await gateway.publish(content)

    async def some(count: int) -> float:
        for _ in range(count):
            await ask(gateway, engine)
        engine.bodies.clear()
        return await asyncio.to_thread(resident_mib, gateway.process.pid)

    before = await some(30)
    assert await some(REQUESTS) - before < GROWTH_MIB
