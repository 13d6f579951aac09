"""What an engine is asked when it starts, driven in this process against an engine that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from msgspec import Raw

from gateway.schema_warm_up import WarmUp, WarmUpRequest
from gateway.state import Gateway
from gateway.view import compile_view
from tests.gateway.fleet import ScriptedEngine, configuration
from wire.snapshot_checks import decode_snapshot

SCHEMAS = [WarmUpRequest("chat", {"response_format": Raw(b'{"type":"json_schema","n":%d}' % n)}) for n in range(3)]


class Site:
    """As much of a gateway as a warm-up sees."""

    def __init__(self, engine: ScriptedEngine, http: aiohttp.ClientSession, known: list[WarmUpRequest]) -> None:
        self.known, self.compiled = known, 0
        self.warming: list[bool] = []
        view = compile_view(decode_snapshot(configuration(engine.url)), 1)
        pools = SimpleNamespace(set_warming=lambda name, warming: self.warming.append(warming))
        metrics = SimpleNamespace(warmed_schema=self._count)
        gateway = SimpleNamespace(view=view, http=http, pools=pools, metrics=metrics)
        self.warm_up = WarmUp(cast("Gateway", gateway), lambda pool: self.known)

    def _count(self, pool: str) -> None:
        self.compiled += 1

    async def until_ended(self) -> None:
        async with asyncio.timeout(20):
            while self.warming[-1]:  # noqa: ASYNC110 - a callback says so, not an event
                await asyncio.sleep(0.005)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def site(engine: ScriptedEngine, http: aiohttp.ClientSession) -> Site:
    return Site(engine, http, SCHEMAS)


async def test_each_schema_is_asked_for_once_by_itself_at_the_lowest_priority(site: Site, engine: ScriptedEngine):
    most_at_once = 0

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal most_at_once
        most_at_once = max(most_at_once, engine.open_requests)
        return await engine.answer(request, body)

    engine.behave = answer
    site.warm_up.started("e0")
    await site.until_ended()
    assert [body["response_format"]["n"] for body in engine.bodies] == [0, 1, 2]
    # The fleet's worst rank is 9.
    assert {(body["max_tokens"], body["priority"], body["model"]) for body in engine.bodies} == {(1, 10, "served-8b")}
    assert (most_at_once, site.compiled, site.warming) == (1, 3, [True, False])


async def test_a_completion_is_asked_for_as_one(site: Site, engine: ScriptedEngine):
    site.known = [WarmUpRequest("completions", {"regex": Raw(b'"a+"')})]
    site.warm_up.started("e0")
    await site.until_ended()
    assert [(body["prompt"], body["regex"]) for body in engine.bodies] == [(".", "a+")]


async def test_an_engine_that_fails_is_left_alone_and_one_that_refuses_a_schema_is_asked_for_the_next(
    site: Site, engine: ScriptedEngine
):
    engine.behave = engine.failing(400)
    site.warm_up.started("e0")
    await site.until_ended()
    assert len(engine.bodies) == 3
    engine.behave = engine.failing(500)
    site.warm_up.started("e0")
    await site.until_ended()
    assert len(engine.bodies) == 4


async def test_an_engine_that_starts_once_more_is_begun_with_afresh(site: Site, engine: ScriptedEngine):
    engine.behave = engine.silence
    site.warm_up.started("e0")
    await engine.arrived.wait()
    engine.behave = engine.answer
    site.warm_up.started("e0")
    await site.until_ended()
    assert [body["response_format"]["n"] for body in engine.bodies] == [0, 0, 1, 2]
    assert site.warming == [True, False, True, False]


async def test_a_silent_engine_is_waited_for_no_longer_than_so(
    engine: ScriptedEngine, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADWORKS_GATEWAY_SCHEMA_WARM_UP_SECONDS", "0.05")
    site = Site(engine, http, SCHEMAS)
    engine.behave = engine.silence
    site.warm_up.started("e0")
    await site.until_ended()
    assert (len(engine.bodies), site.compiled) == (1, 0)


async def test_nothing_is_asked_where_nothing_is_known_and_after_the_end(site: Site, engine: ScriptedEngine):
    site.known = []
    site.warm_up.started("e0")
    site.known = SCHEMAS
    site.warm_up.started("nobody")
    engine.behave = engine.silence
    # The first look at an engine is as a start; later ones are not.
    site.warm_up.looked("e0")
    site.warm_up.looked("e0")
    await engine.arrived.wait()
    await site.warm_up.close()
    assert (len(engine.bodies), site.warming) == (1, [True, False])
