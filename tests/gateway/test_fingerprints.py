"""Repeats and prompts that defeat a prefix cache are counted by pool and tenant, and refuse nothing."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    KEYS,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    running_gateway,
    shared_configuration,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
INSTRUCTIONS = "Answer as a clerk of the acme company would, and name the paragraph that you rely on. " * 6
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    # The key `parked` is of the tenant `gone`.
    content = changed(shared_configuration(engine.url), tenants__gone={"rpm_limit": 1})
    async with running_gateway(tmp_path_factory.mktemp("gateway"), content) as gateway:
        yield gateway


Counted = Callable[[], Awaitable[dict[str, float]]]


@pytest_asyncio.fixture(loop_scope="module")
async def counted(gateway: RunningGateway) -> Counted:
    """What has been counted since the test began, without the zeros: kind → number."""

    async def now() -> dict[str, float]:
        rows = {
            kind: await gateway.metric("headworks_gateway_repeated_requests_total", pool="main", kind=kind)
            for kind in ("retry", "duplicate")
        }
        return rows | {"hostile": await gateway.metric("headworks_gateway_cache_hostile_prompts_total", pool="main")}

    before = await now()

    async def since() -> dict[str, float]:
        return {kind: number - before[kind] for kind, number in (await now()).items() if number != before[kind]}

    return since


def unique() -> str:
    return f"question {next(_numbers)}"


def instructed(before: str = "", question: str = "") -> dict[str, Any]:
    messages = [{"role": "system", "content": before + INSTRUCTIONS}, {"role": "user", "content": question or unique()}]
    return chat() | {"messages": messages}


async def test_the_same_body_of_the_same_key_is_a_retry_and_no_duplicate(gateway: RunningGateway, counted: Counted):
    body = chat(unique())
    for _ in range(3):
        await gateway.call(body)
    assert await counted() == {"retry": 2}


async def test_the_same_prompt_from_another_tenant_or_with_other_settings_is_a_duplicate(
    gateway: RunningGateway, counted: Counted
):
    async def of_beta() -> float:
        return await gateway.metric("headworks_gateway_repeated_requests_total", tenant="beta", kind="duplicate")

    question, before = unique(), await of_beta()
    await gateway.call(chat(question))
    await gateway.call(chat(question), tenant="beta")
    await gateway.call(chat(question, temperature=0.3))
    assert await counted() == {"duplicate": 2}
    assert await of_beta() == before + 1


async def test_the_same_body_of_another_tenants_x_api_key_is_no_retry(gateway: RunningGateway, counted: Counted):
    body = chat(unique())
    for tenant in ("alpha", "beta"):
        key = {"X-Api-Key": KEYS[tenant]}
        assert (await gateway.call(body, tenant=None, headers=key))[0] == 200
    assert await counted() == {"duplicate": 1}


async def test_other_prompts_are_no_repeats(gateway: RunningGateway, counted: Counted):
    for _ in range(5):
        await gateway.call(chat(unique()))
    assert await counted() == {}


async def test_token_ids_are_prompts_like_others(gateway: RunningGateway, counted: Counted):
    def ids(*numbers: int, **fields: Any) -> dict[str, Any]:
        return {"model": chat()["model"], "prompt": numbers, **fields}

    await gateway.call(ids(1, 2, 3), path="/v1/completions")
    await gateway.call(ids(1, 2, 4), path="/v1/completions")
    assert await counted() == {}
    await gateway.call(ids(1, 2, 3, max_tokens=9), path="/v1/completions")
    assert await counted() == {"duplicate": 1}


async def test_what_stands_beside_the_messages_is_part_of_the_prompt(gateway: RunningGateway, counted: Counted):
    body = {"model": chat()["model"], "messages": [{"role": "user", "content": unique()}], "max_tokens": 5}
    for system in ("be brief", "be long"):
        await gateway.post(body | {"system": system}, path="/v1/messages")
    assert await counted() == {}


async def test_requests_that_the_quota_refuses_are_repeats_as_well(gateway: RunningGateway, counted: Counted):
    body = chat(unique())
    statuses = [(await gateway.call(body, tenant="parked"))[0] for _ in range(4)]
    assert statuses[1:] == [429, 429, 429]
    assert await counted() == {"retry": 3}


async def test_a_new_beginning_before_instructions_that_repeat_is_hostile_to_the_cache(
    gateway: RunningGateway, counted: Counted
):
    for name in ("Ali, 9:41", "Zeynep, 9:42", "Can, 10:17"):
        await gateway.call(instructed(f"You speak with {name}. {unique()} "))
    assert (await counted())["hostile"] >= 2


async def test_instructions_that_come_first_are_not(gateway: RunningGateway, counted: Counted):
    for name in ("Ali, 9:41", "Zeynep, 9:42", "Can, 10:17"):
        await gateway.call(instructed(question=f"I am {name}. {unique()}"))
    await gateway.call(instructed())
    assert (await counted()).get("hostile", 0) <= 1


async def test_tools_that_repeat_are_not_text_that_follows(gateway: RunningGateway, counted: Counted):
    tool = {"type": "function", "function": {"name": "clerk", "description": INSTRUCTIONS, "parameters": {}}}
    for _ in range(3):
        await gateway.call(chat(unique(), tools=[tool]))
    assert await counted() == {}


async def test_a_repeat_is_told_in_the_requests_decision(gateway: RunningGateway):
    body = chat(unique())
    await gateway.call(body, tenant="parked")
    await gateway.call(body, tenant="parked")

    async def told() -> bool:
        stages = [stage for decision in gateway.control.decisions for stage in decision["stages"]]
        return any(stage.get("numbers", {}).get("retry") == 1 for stage in stages)

    await gateway.until(told, True, "a decision that tells of the retry")
