"""What a gateway admits at an engine that others use too, by what the engine's own page says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, configuration, running_gateway

ENVIRONMENT = {"HEADWORKS_GATEWAY_ENGINE_LOOK_SECONDS": "0.05", "HEADWORKS_GATEWAY_ENGINE_STALE_SECONDS": "0.5"}
# With seven of the prompt: a request of 107 tokens, and one of 97.
LARGE, SMALL = chat(max_tokens=100), chat(max_tokens=90)
FULL = (503, "no_kv_capacity")


def page(used_permille: int, running: int = 9, capacity_tokens: int = 1_000) -> bytes:
    return (
        f'vllm:num_requests_running{{engine="0"}} {running}\n'
        'vllm:num_requests_waiting{engine="0"} 0\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} {used_permille / 1000}\n'
        f'vllm:cache_config_info{{engine="0",kv_cache_size_tokens="{capacity_tokens}"}} 1\n'
    ).encode()


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """Of its engine others use 90 %, and the gateway has seen it. Nothing may wait."""
    engine.page = page(900)
    content = changed(configuration(engine.url), pools__main__kv_admit_permille=1000, pools__main__queue_cap=0)
    async with running_gateway(tmp_path, content, ENVIRONMENT) as gateway:
        await held_by_others(gateway, 900)
        yield gateway


async def held_by_others(gateway: RunningGateway, tokens: int) -> None:
    await gateway.until(
        lambda: gateway.metric("headworks_gateway_kv_others_tokens", pool="main", engine="e0"), tokens, "a look"
    )


async def goes_stale(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    engine.page = None

    async def is_old() -> bool:
        return await gateway.metric("headworks_gateway_engine_look_age_seconds", pool="main", engine="e0") > 0.5

    await gateway.until(is_old, True, "the look to be stale")
    assert await gateway.metric("headworks_gateway_engine_look_failures_total", pool="main", engine="e0") > 0


async def test_only_the_rest_is_admitted(gateway: RunningGateway, engine: ScriptedEngine):
    assert await gateway.refusal(LARGE) == FULL
    assert (await gateway.call(SMALL))[0] == 200
    asked = len(engine.bodies)

    async def shown_on_the_page(request, body):
        engine.page = page(990, running=10)
        return await engine.silence(request, body)

    engine.behave = shown_on_the_page
    first = asyncio.create_task(gateway.call(SMALL))
    await held_by_others(gateway, 990 - 97)
    assert await gateway.refusal(SMALL) == FULL, "what is reserved counts, and counts once"
    assert len(engine.bodies) == asked + 1
    engine.release.set()
    assert (await first)[0] == 200


async def test_a_page_that_shows_nothing_running_blocks_nothing(gateway: RunningGateway, engine: ScriptedEngine):
    engine.page = page(1000, running=0)
    await held_by_others(gateway, 0)
    assert (await gateway.call(LARGE))[0] == 200


async def test_what_its_page_can_never_hold_is_told_at_once(gateway: RunningGateway, engine: ScriptedEngine):
    engine.page = page(0, capacity_tokens=100)
    await held_by_others(gateway, 0)
    assert await gateway.refusal(LARGE) == (400, "never_fits_kv")


async def test_who_waits_is_served_when_a_look_shows_room(gateway: RunningGateway, engine: ScriptedEngine):
    await gateway.publish(changed(gateway.control.content, pools__main__queue_cap=9, pools__main__queue_ttl_ms=60_000))
    waiting = asyncio.create_task(gateway.call(LARGE))
    await held_by_others(gateway, 900)
    assert engine.bodies == []
    engine.page = page(400)
    assert (await waiting)[0] == 200


@pytest.mark.parametrize(("policy", "large", "small"), [("close", 503, 503), ("hold", 503, 200), ("open", 200, 200)])
async def test_when_its_page_stays_away_the_pool_says_what_holds(
    gateway: RunningGateway, engine: ScriptedEngine, policy: str, large: int, small: int
):
    await gateway.publish(changed(gateway.control.content, pools__main__stale_telemetry=policy))
    assert (await gateway.call(SMALL))[0] == 200, "while it is fresh, in every case"
    assert await gateway.refusal(LARGE) == FULL
    await goes_stale(gateway, engine)
    assert (await gateway.call_status(LARGE), await gateway.call_status(SMALL)) == (large, small)
    engine.page = page(0)
    await held_by_others(gateway, 0)
    assert (await gateway.call(LARGE))[0] == 200, "and again when it is back"


async def test_an_engine_that_has_no_such_page_is_not_stale(gateway: RunningGateway, engine: ScriptedEngine):
    content = changed(gateway.control.content, pools__main__stale_telemetry="close", engines__e0__kind="ollama")
    await gateway.publish(content)
    engine.page = None
    assert (await gateway.call(LARGE))[0] == 200
