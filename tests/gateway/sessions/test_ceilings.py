"""Sessions of agents end at their ceilings, whatever their clients do."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.fleet import KEYS, MODEL, RunningGateway, ScriptedEngine, changed, chat, shared_configuration, usage
from tests.gateway.sessions.calls import limit, looping, message_of, new_names, session

pytestmark = pytest.mark.asyncio(loop_scope="module")
IDLE_MS = 3_600_000


async def test_a_session_makes_as_many_calls_as_it_may(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=2)
    mine = session()
    assert [(await gateway.call(chat(), headers=mine))[0] for _ in range(2)] == [200, 200]
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_iterations")
    said = await message_of(gateway, chat(), mine)
    assert "has used 2 of 2 model calls" in said
    assert "closed until nobody has used it for 3600 s" in said
    assert len(engine.bodies) == 2


async def test_another_session_and_another_tenant_are_not_touched(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=1)
    mine = session()
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    assert (await gateway.call(chat(), headers=mine))[0] == 429
    assert (await gateway.call(chat(), headers=session()))[0] == 200
    assert (await gateway.call(chat(), tenant="beta", headers=mine))[0] == 200


async def test_a_closed_session_says_when_it_would_open_again(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=1)
    mine = session()
    await gateway.call(chat(), headers=mine)
    _, _, headers = await gateway.call(chat(), headers=mine)
    assert IDLE_MS / 1000 <= int(headers["retry-after"]) <= IDLE_MS / 1000 + 60
    # The official clients would come again at once otherwise.
    assert headers["x-should-retry"] == "false"


async def test_official_clients_give_up_a_closed_session_at_once(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=1)
    mine = session()
    await gateway.call(chat(), headers=mine)

    async def refused() -> float:
        return await gateway.metric("headworks_gateway_requests_total", reason="session_iterations")

    before = await refused()
    hello: Any = chat()["messages"]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS["alpha"], default_headers=mine) as client:
        with pytest.raises(openai.RateLimitError, match="has used 1 of 1 model calls"):
            await asyncio.wait_for(client.chat.completions.create(model=MODEL, messages=hello), 10)
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, auth_token=KEYS["alpha"], api_key=None, default_headers=mine
    ) as other:
        with pytest.raises(anthropic.RateLimitError, match="has used 1 of 1 model calls"):
            await asyncio.wait_for(other.messages.create(model=MODEL, messages=hello, max_tokens=5), 10)
    assert await refused() == before + 2


async def test_a_session_that_nobody_uses_is_forgotten_and_counted(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=2, idle_ms=100)

    async def known() -> float:
        began = await gateway.metric("headworks_gateway_sessions_total", tenant="alpha")
        return began - await gateway.metric("headworks_gateway_session_calls_count", tenant="alpha")

    await gateway.until(known, 0, "the sessions of other tests to be forgotten")
    before = await gateway.metric("headworks_gateway_session_calls_sum", tenant="alpha")
    mine = session()
    for _ in range(2):
        await gateway.call(chat(), headers=mine)
    await gateway.until(known, 0, "the session to be forgotten")
    assert await gateway.metric("headworks_gateway_session_calls_sum", tenant="alpha") == before + 2
    assert (await gateway.call(chat(), headers=mine))[0] == 200


async def test_an_answer_is_no_longer_than_the_tokens_that_the_session_has_left(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limit(gateway, engine, max_tokens=100)
    mine = session()
    engine.usage = usage(7, 60)
    _, _, headers = await gateway.call(chat(max_tokens=400), headers=mine)
    asked = engine.bodies[-1]["max_tokens"]
    prompt_tokens = int(headers["x-headworks-prompt-tokens"].split(";")[0])
    assert asked == 100 - prompt_tokens
    assert headers["x-headworks-max-tokens"] == f"{asked};reason=session"
    await gateway.call(chat(max_tokens=400), headers=mine)
    assert engine.bodies[-1]["max_tokens"] == 100 - 67 - prompt_tokens


async def test_a_session_whose_tokens_are_used_up_is_closed(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_tokens=100)
    mine = session()
    engine.usage = usage(50, 45)
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    assert await gateway.refusal(chat("x" * 40), headers=mine) == (429, "session_tokens")
    assert await gateway.refusal(chat("x", max_tokens=1), headers=mine) == (429, "session_tokens")


async def test_a_session_costs_no_more_than_it_may_by_the_models_prices(
    gateway: RunningGateway, engine: ScriptedEngine
):
    content = changed(
        shared_configuration(engine.url),
        tenants__alpha={"session_limits": "agents"},
        session_limits__agents={"max_cost_micros": 1_000},
    )
    content["models"][MODEL] |= {"prompt_token_cost_micros": 2, "output_token_cost_micros": 10}
    await gateway.publish(content)
    mine = session()
    engine.usage = usage(100, 70)
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    assert engine.bodies[-1]["max_tokens"] == 50
    assert (await gateway.call(chat(), headers=mine))[0] == 200
    assert engine.bodies[-1]["max_tokens"] < 10
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_cost")


async def test_agents_call_agents_no_deeper_than_they_may(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_depth=2)
    name = f"s{next(new_names)}"
    assert (await gateway.call(chat(), headers=session(name, depth=2)))[0] == 200
    assert await gateway.refusal(chat(), headers=session(name, depth=3)) == (400, "session_depth")
    assert "3 agents deep" in await message_of(gateway, chat(), session(name, depth=3))
    # The agent above goes on with its own work.
    assert (await gateway.call(chat(), headers=session(name)))[0] == 200


async def test_the_same_tool_with_the_same_arguments_three_times_running_closes_the_session(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limit(gateway, engine, max_repeated_calls=3)
    mine = session()
    assert (await gateway.call(looping(2), headers=mine))[0] == 200
    assert await gateway.refusal(looping(3), headers=mine) == (429, "session_repeated_call")
    assert "3 times running" in await message_of(gateway, looping(3), mine)
    assert await gateway.refusal(chat(), headers=mine) == (429, "session_repeated_call")


async def test_a_loop_and_a_depth_are_seen_without_a_session_too(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_repeated_calls=3, max_depth=2)
    assert await gateway.refusal(looping(3)) == (429, "session_repeated_call")
    assert await gateway.refusal(chat(), headers={"X-Agent-Depth": "3"}) == (400, "session_depth")
    assert (await gateway.call(looping(2)))[0] == 200


async def test_calls_without_a_session_are_each_one_by_itself(gateway: RunningGateway, engine: ScriptedEngine):
    await limit(gateway, engine, max_iterations=1, max_tokens=100)
    for _ in range(3):
        assert (await gateway.call(chat(max_tokens=400)))[0] == 200
        assert engine.bodies[-1]["max_tokens"] < 100


@pytest.mark.parametrize(
    "headers",
    [{"X-Session-Id": "a b"}, {"X-Session-Id": "x" * 129}, {"X-Session-Id": ""}, {"X-Agent-Depth": "-1"}]
    + [{"X-Agent-Depth": value} for value in ("", "two", "1.5", "10000")],
)
async def test_a_header_that_cannot_be_read_is_refused_by_name(gateway: RunningGateway, headers: dict[str, str]):
    assert await gateway.refusal(chat(), headers=headers) == (400, "bad_header")
