"""Which model a request is for where its name alone does not say: a tenant's pinned version, an adapter of another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    KEYS,
    MODEL,
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    running_gateway,
    scripted_engine,
    shared_configuration,
)

NEXT = "acme/small-8b-v2"
SQL = "acme/sql"
pytestmark = pytest.mark.asyncio(loop_scope="module")
engine = pytest_asyncio.fixture(scope="module", loop_scope="module")(scripted_engine)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("shared"), shared_configuration(engine.url)) as gateway:
        yield gateway


async def offered(gateway: RunningGateway) -> list[str]:
    headers = {"Authorization": f"Bearer {KEYS['alpha']}"}
    async with gateway.http.get(f"{gateway.url}/v1/models", headers=headers) as answer:
        return [model["id"] for model in (await answer.json())["data"]]


def versions(engine: ScriptedEngine, **paths: object) -> dict[str, object]:
    content = shared_configuration(engine.url, pools=("main", "next"))
    model = content["models"][MODEL]
    return changed(
        content,
        models={MODEL: model, NEXT: {**model, "max_tokens": 300}},
        aliases={"small": {"model": NEXT}},
        pools={"main": {"model": MODEL}, "next": {"model": NEXT}},
        engines={
            **content["engines"],
            "n0": {"url": engine.url, "kind": "vllm", "pool": "next", "served_model": "served-8b-v2"},
        },
        routes={
            "old": {"order": 0, "match": {"models": {MODEL: True}}, "pools": {"main": 1000}},
            "new": {"order": 1, "match": {"models": {NEXT: True}}, "pools": {"next": 1000}},
        },
        **paths,
    )


async def test_a_pinned_tenant_keeps_its_version_and_others_follow(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(versions(engine, tenants__alpha={"pins": {"small": MODEL}}))
    ask = {**chat(max_tokens=9999), "model": "small"}
    status, _, headers = await gateway.call(ask)
    assert (status, headers["x-headworks-max-tokens"]) == (200, "400;reason=clamped")
    assert engine.bodies[-1]["model"] == "served-8b"
    status, _, headers = await gateway.call(ask, tenant="beta")
    assert (status, headers["x-headworks-max-tokens"]) == (200, "300;reason=clamped")
    assert engine.bodies[-1]["model"] == "served-8b-v2"


async def test_a_decision_notes_that_the_tenant_is_pinned(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    await gateway.publish(versions(engine, tenants__alpha={"pins": {"small": MODEL}, "models": {}}))
    asked = {"p-1": "small", "p-2": NEXT}
    for request_id, model in asked.items():
        await gateway.call({**chat(), "model": model}, headers={"X-Request-Id": request_id})

    async def noted() -> dict[str, int]:
        read = {
            each["request_id"]: note.get("numbers", {}).get("pinned", 0)
            for each in gateway.control.decisions
            for note in each["stages"]
            if note["stage"] == "read"
        }
        return {name: read[name] for name in asked if name in read}

    await gateway.until(noted, {"p-1": 1, "p-2": 0}, "both to be told of")


async def test_a_version_is_called_by_its_own_name_whatever_is_pinned(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(versions(engine, tenants__alpha={"pins": {"small": MODEL}}))
    assert await gateway.call_status({**chat(), "model": NEXT}) == 200
    assert engine.bodies[-1]["model"] == "served-8b-v2"


async def test_a_pin_is_a_name_for_what_the_tenant_may_use_and_no_permission(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    pinned = {"pins": {"small": MODEL}, "models": {NEXT: True}}
    await gateway.publish(versions(engine, tenants__alpha=pinned))
    assert await gateway.refusal({**chat(), "model": "small"}) == (403, "model_not_allowed")
    assert await offered(gateway) == [NEXT]


async def test_who_may_use_an_alias_gets_whatever_it_stands_for_by_that_name_alone(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    for stands_for, served in ((MODEL, "served-8b"), (NEXT, "served-8b-v2")):
        follows = versions(engine, tenants__alpha={"models": {"small": True}}, aliases__small__model=stands_for)
        await gateway.publish(follows)
        assert await gateway.call_status({**chat(), "model": "small"}) == 200
        assert engine.bodies[-1]["model"] == served
        assert await gateway.refusal({**chat(), "model": stands_for}) == (403, "model_not_allowed")
        assert await offered(gateway) == ["small"]


def adapted(engine: ScriptedEngine, **paths: object) -> dict[str, object]:
    content = shared_configuration(engine.url, pools=("main", "adapted"))
    model = content["models"][MODEL]
    base = changed(
        content,
        models={MODEL: model, SQL: {**model, "max_tokens": 200, "adapter": "sql"}},
        pools={"main": {"model": MODEL}, "adapted": {"model": MODEL, "adapters": {"sql": True}}},
        engines={
            **content["engines"],
            "a0": {"url": engine.url, "kind": "vllm", "pool": "adapted", "served_model": "served-8b-lora"},
        },
        routes={
            "all": {"order": 0, "pools": {"main": 1000}},
            "sql": {"order": 1, "match": {"models": {SQL: True}}, "pools": {"adapted": 1000}},
        },
    )
    return changed(base, **paths)


async def test_the_engine_is_asked_for_the_adapter_and_the_bounds_are_its_own(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(adapted(engine))
    status, _, headers = await gateway.call({**chat(max_tokens=9999), "model": SQL})
    assert (status, headers["x-headworks-max-tokens"]) == (200, "200;reason=clamped")
    assert engine.bodies[-1]["model"] == "sql"


async def test_its_base_model_is_asked_for_by_its_own_name_in_the_same_pool(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(adapted(engine, routes={"all": {"order": 0, "pools": {"adapted": 1000}}}))
    assert await gateway.call_status({**chat(), "model": MODEL}) == 200
    assert engine.bodies[-1]["model"] == "served-8b-lora"


async def test_no_engine_without_the_adapter_answers_in_its_place(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(adapted(engine, routes={"all": {"order": 0, "pools": {"main": 1000}}}))
    assert await gateway.refusal({**chat(), "model": SQL}) == (400, "no_route")


async def test_models_lists_an_adapter_that_some_pool_holds(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    await gateway.publish(adapted(engine))
    assert await offered(gateway) == [MODEL, SQL]
    plain = {"main": {"model": MODEL}, "adapted": {"model": MODEL}}
    await gateway.publish({**adapted(engine, routes={"all": {"order": 0, "pools": {"main": 1000}}}), "pools": plain})
    assert await offered(gateway) == [MODEL]
