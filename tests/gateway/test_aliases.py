"""A request for an alias is one for its model."""

from __future__ import annotations

from tests.gateway.fleet import KEYS, MODEL, RunningGateway, ScriptedEngine, changed, chat, configuration

ALIAS = "small"


def aliased(engine: ScriptedEngine, **paths: object) -> dict[str, object]:
    return changed(configuration(engine.url), aliases={ALIAS: {"model": MODEL}}, **paths)


async def offered(gateway: RunningGateway) -> list[str]:
    headers = {"Authorization": f"Bearer {KEYS['alpha']}"}
    async with gateway.http.get(f"{gateway.url}/v1/models", headers=headers) as answer:
        return [model["id"] for model in (await answer.json())["data"]]


async def test_rules_limits_and_the_engine_are_those_of_its_model(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    only = {"all": {"order": 1, "match": {"models": {MODEL: True}}, "pools": {"main": 1000}}}
    await gateway.publish(aliased(engine, routes=only, tenants__alpha={"models": {MODEL: True}}))
    status, _, headers = await gateway.call({**chat(max_tokens=9999), "model": ALIAS})
    assert status == 200
    assert headers["x-headworks-max-tokens"] == "400;reason=clamped"
    assert engine.bodies[-1]["model"] == "served-8b"


async def test_models_lists_the_aliases_of_models_that_the_tenant_may_use(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    await gateway.publish(aliased(engine))
    assert await offered(gateway) == [MODEL, ALIAS]
    await gateway.publish(aliased(engine, tenants__alpha={"models": {}}))
    assert await offered(gateway) == []


async def test_a_refusal_names_the_model_as_the_client_did(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    await gateway.publish(aliased(engine, tenants__alpha={"models": {}}))
    status, body, _ = await gateway.call({**chat(), "model": ALIAS})
    assert (status, body["error"]["code"]) == (403, "model_not_allowed")
    assert repr(ALIAS) in body["error"]["message"]


async def test_an_alias_that_is_taken_back_is_no_model(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    await gateway.publish(aliased(engine))
    assert await gateway.call_status({**chat(), "model": ALIAS}) == 200
    await gateway.publish(configuration(engine.url))
    assert await gateway.refusal({**chat(), "model": ALIAS}) == (404, "model_not_found")
