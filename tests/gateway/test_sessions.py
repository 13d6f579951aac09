"""Sessions of agents end at their ceilings, whatever their clients do, and what a call held of one comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    running_gateway,
    shared_configuration,
    usage,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
IDLE_MS = 3_600_000
_names = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    running_engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningGateway]:
    content = shared_configuration(running_engine.url)
    async with running_gateway(tmp_path_factory.mktemp("gateway"), content) as gateway:
        yield gateway


@pytest.fixture
def engine(running_engine: ScriptedEngine) -> ScriptedEngine:
    running_engine.behave, running_engine.usage = running_engine.answer, usage(7, 2)
    running_engine.release.clear()
    running_engine.bodies.clear()
    return running_engine


async def limit(gateway: RunningGateway, engine: ScriptedEngine, **limits: Any) -> None:
    """Give tenant alpha these session limits, by a configuration that is otherwise as at the beginning."""
    content = changed(
        shared_configuration(engine.url),
        tenants__alpha={"session_limits": "agents"},
        session_limits__agents=limits,
    )
    await gateway.publish(content)


def session(name: str | None = None, depth: int | None = None) -> dict[str, str]:
    """Headers of a session, a new one unless it is named."""
    headers = {"X-Session-Id": name or f"s{next(_names)}"}
    return headers if depth is None else {**headers, "X-Agent-Depth": str(depth)}


async def message_of(gateway: RunningGateway, body: Any, headers: dict[str, str]) -> str:
    _, document, _ = await gateway.call(body, headers=headers)
    return str(document["error"]["message"])


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
    name = f"s{next(_names)}"
    assert (await gateway.call(chat(), headers=session(name, depth=2)))[0] == 200
    assert await gateway.refusal(chat(), headers=session(name, depth=3)) == (400, "session_depth")
    assert "3 agents deep" in await message_of(gateway, chat(), session(name, depth=3))
    # The agent above goes on with its own work.
    assert (await gateway.call(chat(), headers=session(name)))[0] == 200


def looping(times: int) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ankara"}'}}
    step = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "timed out"},
    ]
    return chat() | {"messages": [{"role": "user", "content": "how warm is it?"}, *step * times]}


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
    mine, body = session(), chat(f"for the cache {next(_names)}", max_tokens=20)
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
