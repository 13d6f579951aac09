"""What load balancers and scrapers ask: alive, ready, and not ready while saturated where that is set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.settings import NOT_READY_WHEN_SATURATED
from tests.gateway.fleet import MODEL, ScriptedEngine, changed, chat, configuration, running_gateway


@pytest.mark.parametrize("told", [True, False])
async def test_a_gateway_whose_queues_are_full_is_not_ready_if_that_is_set(
    engine: ScriptedEngine, tmp_path: Path, told: bool
):
    pool = {"model": MODEL, "max_concurrency": 1, "queue_cap": 1, "queue_ttl_ms": 60_000}
    content = changed(configuration(engine.url), pools__main=pool)
    async with running_gateway(tmp_path, content, {NOT_READY_WHEN_SATURATED.name: str(told)}) as gateway:

        async def queued() -> float:
            return float(await gateway.metric("headworks_gateway_queue_length"))

        async def ready() -> tuple[int, str]:
            async with gateway.http.get(f"{gateway.url}/readyz") as answer:
                return answer.status, (await answer.text()).splitlines()[0]

        engine.behave = engine.silence
        running = asyncio.ensure_future(gateway.call(chat()))
        await asyncio.wait_for(engine.arrived.wait(), 10)
        assert await ready() == (200, "ready")
        waiting = asyncio.ensure_future(gateway.call(chat()))
        await gateway.until(queued, 1, "the queue to be full")
        assert await ready() == ((503, "saturated") if told else (200, "ready"))
        async with gateway.http.get(f"{gateway.url}/healthz") as answer:
            assert answer.status == 200, "it lives"
        engine.release.set()
        assert [(await each)[0] for each in (running, waiting)] == [200, 200]
        assert await ready() == (200, "ready")
