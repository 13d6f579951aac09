"""What a call held of its session comes back, and what sessions use is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.fleet import KEYS, RunningGateway, ScriptedEngine, changed, chat, shared_configuration, usage
from tests.gateway.sessions.calls import limit, looping, new_names, session

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_calls_side_by_side_are_all_counted_and_close_nothing(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=3)
    mine = session()
    engine.behave = engine.silence
    calls = [asyncio.ensure_future(gateway.call(chat(), headers=mine)) for _ in range(5)]

    async def ended() -> int:
        return sum(call.done() for call in calls)

    await gateway.until(ended, 2, "two of five calls to be refused")
    for status, document, headers in (call.result() for call in calls if call.done()):
        assert (status, document["error"]["code"]) == (429, "session_iterations")
        assert "its running calls may use 3" in document["error"]["message"]
        assert int(headers["retry-after"]) < 10
    engine.release.set()
    assert sorted(status for status, _, _ in await asyncio.gather(*calls)) == [200, 200, 200, 429, 429]


async def test_a_client_that_leaves_gives_back_what_its_call_did_not_use(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limit(gateway, engine, max_tokens=300)
    mine = session()
    engine.behave = engine.one_token_then_silence
    answer = await gateway.post(chat(stream=True, max_tokens=400), headers=mine)
    await answer.content.readany()
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_tokens")
    answer.close()
    await gateway.until_left(engine)
    engine.behave = engine.answer
    await until_answered(gateway, mine)


async def test_a_client_that_leaves_before_the_first_token_gives_everything_back(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limit(gateway, engine, max_tokens=300)
    mine = session()
    engine.behave = engine.silence
    # Of a stream none has come. A whole answer that is left is charged for the time that it ran.
    call = asyncio.ensure_future(gateway.call(chat(stream=True, max_tokens=400), headers=mine))
    await gateway.until(lambda: open_requests(engine), 1, "the call to reach the engine")
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_tokens")
    call.cancel()
    await gateway.until_left(engine)
    engine.behave = engine.answer
    await until_answered(gateway, mine)


async def test_a_call_that_no_engine_was_asked_for_is_none_of_the_session(
    gateway: RunningGateway, engine: ScriptedEngine
):
    content = changed(
        shared_configuration(engine.url),
        tenants__alpha={"session_limits": "agents", "rpm_limit": 1},
        session_limits__agents={"max_iterations": 2},
    )
    await gateway.publish(content)
    mine = session()
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    for _ in range(3):
        assert await gateway.refusal(chat(), headers=mine) == (429, "rpm_limit")
    await limit(gateway, engine, max_iterations=2)
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_iterations")


async def test_a_call_whose_engine_failed_counts_and_costs_nothing(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=2, max_tokens=100)
    mine = session()
    engine.behave = engine.failing(400)
    assert await gateway.refusal(chat(max_tokens=400), headers=mine) == (400, "engine_rejected")
    engine.behave = engine.answer
    assert (await gateway.call(chat(max_tokens=400), headers=mine))[0] == 200
    assert engine.bodies[-1]["max_tokens"] == engine.bodies[-2]["max_tokens"]
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_iterations")


async def test_an_answer_from_a_cache_is_a_call_of_the_session_and_costs_no_tokens(
    gateway: RunningGateway, engine: ScriptedEngine
):
    content = changed(
        shared_configuration(engine.url),
        tenants__alpha={"session_limits": "agents", "cache_policy": "same"},
        session_limits__agents={"max_iterations": 3, "max_tokens": 100},
        cache_policies__same={"exact": {}},
    )
    await gateway.publish(content)
    engine.usage = usage(40, 5)
    mine, body = session(), chat(f"for the cache {next(new_names)}", max_tokens=20)
    engine.behave = finished
    assert [(await gateway.call(body, headers=mine))[0] for _ in range(3)] == [200, 200, 200]
    assert len(engine.bodies) == 1
    assert await gateway.refusal(body, headers=mine) == (429, "session_iterations")


async def finished(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
    return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage(40, 5)})


async def test_a_decision_tells_what_the_session_had_used(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=9, max_repeated_calls=3)
    mine = session(depth=1)
    engine.usage = usage(40, 5)
    await gateway.call(chat(), headers=mine)
    engine.behave = engine.failing(400)
    await gateway.call(looping(2), headers={**mine, "X-Request-Id": "told-of"})

    async def told() -> dict[str, int]:
        (decision,) = [each for each in gateway.control.decisions if each["request_id"] == "told-of"] or [{}]
        notes = [note for note in decision.get("stages", ()) if note["stage"] == "check_session"]
        return dict(notes[0]["numbers"]) if notes else {}

    numbers = {"depth": 1, "repeated_calls": 2, "used_calls": 1, "used_tokens": 45, "used_cost_micros": 0}
    await gateway.until(told, numbers, "the decision")


async def test_a_ceiling_that_is_moved_opens_a_closed_session(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=1)
    mine = session()
    await gateway.call(chat(), headers=mine)
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_iterations")
    await limit(gateway, engine, max_iterations=2)
    assert (await gateway.call(chat(), headers=mine))[0] == 200


async def test_sessions_near_a_limit_and_closed_ones_are_counted_once(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=5)
    labels = {"tenant": "alpha", "reason": "session_iterations"}

    async def counted() -> list[float]:
        names = ("sessions_near_limit_total", "sessions_closed_total")
        return [await gateway.metric(f"headworks_gateway_{name}", **labels) for name in names]

    near, closed = await counted()
    mine = session()
    for _ in range(3):
        await gateway.call(chat(), headers=mine)
    assert await counted() == [near, closed]
    for _ in range(4):
        await gateway.call(chat(), headers=mine)
    assert await counted() == [near + 1, closed + 1]


async def test_calls_of_sessions_are_counted_without_any_limit(gateway: RunningGateway, engine: ScriptedEngine):
    await gateway.publish(shared_configuration(engine.url))
    sessions = await gateway.metric("headworks_gateway_sessions_total", tenant="beta")
    requests = await gateway.metric("headworks_gateway_session_requests_total", tenant="beta", pool="main")
    mine = session()
    for _ in range(3):
        assert (await gateway.call(chat(), tenant="beta", headers=mine))[0] == 200
    await gateway.call(chat(), tenant="beta")
    assert await gateway.metric("headworks_gateway_sessions_total", tenant="beta") == sessions + 1
    requested = await gateway.metric("headworks_gateway_session_requests_total", tenant="beta", pool="main")
    assert requested == requests + 3


async def test_the_busiest_session_of_a_tenant_is_told_without_any_limit(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await gateway.publish(shared_configuration(engine.url))
    busy, quiet = session(), session()
    for mine, calls in ((busy, 4), (quiet, 1)):
        for _ in range(calls):
            assert (await gateway.call(chat(), tenant="beta", headers=mine))[0] == 200
    most = await gateway.metric("headworks_gateway_session_calls_highest", tenant="beta")
    assert most == 4
    # The engine tells 9 tokens a call.
    assert await gateway.metric("headworks_gateway_session_tokens_highest", tenant="beta") == 36


async def test_a_loop_is_counted_where_nothing_bounds_it(gateway: RunningGateway, engine: ScriptedEngine):
    await gateway.publish(shared_configuration(engine.url))
    loops = await gateway.metric("headworks_gateway_repeated_tool_calls_total", tenant="beta")
    for times in (2, 3, 4):
        assert (await gateway.call(looping(times), tenant="beta", headers=session()))[0] == 200
    assert await gateway.metric("headworks_gateway_repeated_tool_calls_total", tenant="beta") == loops + 2


async def test_a_tenant_that_is_removed_while_its_body_comes_leaves_no_session(
    gateway: RunningGateway, engine: ScriptedEngine
):
    with_beta = shared_configuration(engine.url)
    await gateway.publish(with_beta)
    body = json.dumps(chat()).encode()
    rest = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        await rest.wait()
        yield body[10:]

    headers = {"Authorization": f"Bearer {KEYS['beta']}", **session()}
    asking = asyncio.ensure_future(
        gateway.http.post(f"{gateway.url}/v1/chat/completions", data=slowly(), headers=headers)
    )

    async def being_served() -> bool:
        return await gateway.metric("headworks_gateway_requests_in_flight") == 1

    await gateway.until(being_served, True, "the request to come")
    without = shared_configuration(engine.url)
    del without["tenants"]["beta"]
    without["keys"] = {key: row for key, row in without["keys"].items() if row["tenant"] != "beta"}
    await gateway.publish(without)
    rest.set()
    async with await asking as answer:
        assert (await answer.json())["error"]["code"] == "unknown_key"
    # The page looks at all sessions that are known.
    assert await gateway.metric("headworks_gateway_requests_in_flight") == 0


async def open_requests(engine: ScriptedEngine) -> int:
    return engine.open_requests


async def until_answered(gateway: RunningGateway, headers: dict[str, str]) -> None:
    async def status() -> int:
        return (await gateway.call(chat(), headers=headers))[0]

    await gateway.until(status, 200, "the session to have room again")
