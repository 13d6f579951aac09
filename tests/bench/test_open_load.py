"""How the overload benchmark judges what a user saw."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from bench.support.open_load import OpenLoad, Promise
from simulator.tokenizer import Words, train_tokenizer
from simulator.traffic import Tenant
from tests.gateway.fleet import DONE, ScriptedEngine, delta, event

PROMISE = Promise(ttft_seconds=0.7, tpot_seconds=0.3, patience_seconds=2)
WORDS = Words(train_tokenizer())
TENANT = Tenant(key="k", model="m", rate_per_second=1, stream_share=1, cancel_share=0)


async def streamed(request: web.Request, *parts: bytes | float) -> web.StreamResponse:
    """Parts of a stream, and rests in seconds between them."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        if isinstance(part, bytes):
            await response.write(part)
        else:
            await asyncio.sleep(part)
    return response


TOKEN = event(delta("a"))
CASES: dict[str, tuple[bytes | float, ...]] = {
    "good": (TOKEN, 0.01, TOKEN, DONE),
    "late": (1.0, TOKEN, TOKEN, DONE),
    "left": (60.0, TOKEN, DONE),
    "cut": (TOKEN, TOKEN),
}


@pytest.mark.parametrize("ending", CASES)
async def test_an_answer_is_judged_by_what_came_when(ending):
    engine = ScriptedEngine()
    engine.behave = lambda request, body: streamed(request, *CASES[ending])
    assert set(await endings(engine)) == {ending}


async def test_slow_tokens_break_the_promise_and_the_patience_is_for_the_first_alone():
    engine = ScriptedEngine()
    engine.behave = lambda request, body: streamed(request, TOKEN, 2.2, TOKEN, DONE)
    assert set(await endings(engine)) == {"late"}


async def test_a_refusal_is_counted_by_its_reason():
    engine = ScriptedEngine()
    engine.behave = engine.failing(503, {"error": {"message": "full", "code": "queue_full"}})
    assert set(await endings(engine)) == {"503 queue_full"}


async def endings(engine: ScriptedEngine) -> dict[str, int]:
    await engine.start()
    try:
        port = int(engine.url.rpartition(":")[2])
        seen = await OpenLoad([port], TENANT, WORDS, PROMISE).offer(20, 0, 0.3, seed=1)
    finally:
        await engine.stop()
    assert seen.endings.total() > 0
    return seen.endings
