"""Schemas that constrain answers: their limits, what is counted of them, and engines that start again."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.fleet import (
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
)
from tests.gateway.simulated import simulated_engine
from tests.services import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMPILE_SECONDS = 2.0
LOOKING = {"HEADWORKS_GATEWAY_ENGINE_LOOK_SECONDS": "0.05"}

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("schemas"), configuration(), LOOKING) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(configuration(engine.url))
    return shared


def schema(field: str = "city") -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"enum": ["Ulm", "Köln", "Bonn"]}}, "required": [field]}


def formed(form: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response_format = {"type": "json_schema", "json_schema": {"name": "town", "schema": form}}
    return chat(response_format=response_format, **fields)


async def limit(gateway: RunningGateway, **limits: int) -> None:
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"schema_limits": limits}))


async def test_a_schema_over_a_limit_of_its_tenant_is_refused_before_an_engine_hears_of_it(
    gateway: RunningGateway, engine: ScriptedEngine
):
    deep = {"type": "array", "items": {"type": "array", "items": schema()}}
    await limit(gateway, max_depth=2)
    assert await gateway.refusal(formed(deep)) == (400, "schema_too_deep")
    await limit(gateway, max_alternatives=2)
    assert await gateway.refusal(formed(schema())) == (400, "schema_too_broad")
    await limit(gateway, max_bytes=100)
    status, document, _ = await gateway.call(formed(schema()))
    assert (status, document["error"]["code"]) == (400, "schema_too_large")
    assert document["error"]["param"] == "response_format"
    assert "the tenant may send 100" in document["error"]["message"]
    assert engine.bodies == []
    # Limits are the tenant's own, and of schemas alone.
    assert (await gateway.call(formed(deep), "beta"))[0] == 200
    assert (await gateway.call(chat()))[0] == 200
    function = {"name": "f", "parameters": schema()}
    strict, free = ({"type": "function", "function": {**function, "strict": strict}} for strict in (True, False))
    assert await gateway.refusal(chat(tools=[strict])) == (400, "schema_too_large")
    assert (await gateway.call(chat(tools=[free])))[0] == 200


async def test_other_schemas_than_the_tenant_may_use_within_an_hour_wait(
    gateway: RunningGateway, engine: ScriptedEngine
):
    await limit(gateway, max_distinct=2)
    for field in ("a", "b", "a"):
        assert (await gateway.call(formed(schema(field))))[0] == 200
    status, document, headers = await gateway.call(formed(schema("c")))
    assert (status, document["error"]["code"]) == (429, "too_many_schemas")
    assert 3500 < int(headers["retry-after"]) <= 3600 * 1.2
    assert (await gateway.call(formed(schema("b"))))[0] == 200
    assert (await gateway.call(formed(schema("c")), "beta"))[0] == 200


async def test_schemas_that_an_engine_had_to_compile_are_counted_once_each(
    gateway: RunningGateway, engine: ScriptedEngine
):
    async def unseen(tenant: str) -> float:
        return await gateway.grown("headworks_gateway_unseen_schemas_total", pool="main", tenant=tenant)

    for field in ("a", "b", "a"):
        assert (await gateway.call(formed(schema(field))))[0] == 200
    assert (await gateway.call(formed(schema("a")), "beta"))[0] == 200
    await limit(gateway, max_bytes=10)
    assert await gateway.refusal(formed(schema("c"))) == (400, "schema_too_large")
    assert (await unseen("alpha"), await unseen("beta")) == (2, 0)
    assert (await gateway.call(chat()))[0] == 200
    constrained = "headworks_gateway_constrained_requests_total"
    assert [await gateway.grown(constrained, pool="main", tenant=tenant) for tenant in ("alpha", "beta")] == [3, 1]


async def test_a_field_that_vllm_ignores_is_refused_where_vllm_would_ignore_it(
    gateway: RunningGateway, engine: ScriptedEngine
):
    body = chat(guided_json=schema())
    status, document, _ = await gateway.call(body)
    assert (status, document["error"]["code"], document["error"]["param"]) == (400, "ignored_field", "guided_json")
    assert "structured_outputs" in document["error"]["message"]
    await gateway.publish(changed(gateway.control.content, engines__e0__kind="sglang"))
    assert (await gateway.call(body))[0] == 200
    assert engine.bodies[-1]["guided_json"] == schema()


async def test_a_fleet_of_older_vllm_may_have_such_fields_passed_on(engine: ScriptedEngine, tmp_path: Path):
    passing = {"HEADWORKS_GATEWAY_REFUSE_IGNORED_FIELDS": "false"}
    async with running_gateway(tmp_path, configuration(engine.url), passing) as gateway:
        assert (await gateway.call(chat(guided_json=schema())))[0] == 200
        assert engine.bodies[-1]["guided_json"] == schema()


class Engines(ExitStack):
    """Simulated engines that take `COMPILE_SECONDS` for each schema they have not seen since their start."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        super().__init__()
        self._folders = {name: folder / name for name in names}
        self._ports = {name: free_port() for name in names}
        self._running: dict[str, ExitStack] = {}
        for name in names:
            self._folders[name].mkdir()
            self.start(name)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports.values()]

    def start(self, name: str) -> None:
        running = self._running[name] = self.enter_context(ExitStack())
        options = ("--speed", "100", "--schema-compile-seconds", str(COMPILE_SECONDS))
        running.enter_context(simulated_engine(self._folders[name], "--port", str(self._ports[name]), *options))

    async def restart(self, name: str, gateway: RunningGateway) -> None:
        """Until the gateway has seen it away and back."""
        await asyncio.to_thread(self._running[name].close)
        await told(gateway, f"engine {name}: its metrics page could not be read")
        await asyncio.to_thread(self.start, name)
        await told(gateway, f"engine {name} has started again")


async def told(gateway: RunningGateway, text: str) -> None:
    async def ask() -> bool:
        return text in gateway.said()

    await gateway.until(ask, True, f"the gateway to say {text!r}")


async def first_token_seconds(gateway: RunningGateway, body: dict[str, Any]) -> float:
    begun = time.monotonic()
    async with gateway.post({**body, "stream": True}) as answer:
        assert answer.status == 200
        await answer.content.readany()
        took = time.monotonic() - begun
        await answer.read()
        return took


async def test_an_engine_that_starts_again_compiles_what_is_known_before_clients_ask(
    gateway: RunningGateway, tmp_path: Path
):
    with Engines(tmp_path, ["e0"]) as engines:
        await gateway.begin_anew(configuration(*engines.urls))
        await ask_around_a_restart(gateway, engines, known=True)


async def test_an_engine_that_starts_again_compiles_nothing_where_nothing_is_to_be_known(tmp_path: Path):
    nothing = {**LOOKING, "HEADWORKS_GATEWAY_KNOWN_SCHEMAS": "0"}
    with Engines(tmp_path, ["e0"]) as engines:
        async with running_gateway(tmp_path, configuration(*engines.urls), nothing) as gateway:
            await ask_around_a_restart(gateway, engines, known=False)


async def ask_around_a_restart(gateway: RunningGateway, engines: Engines, *, known: bool) -> None:
    body = formed(schema(), max_tokens=20)
    assert await first_token_seconds(gateway, body) > COMPILE_SECONDS
    assert await first_token_seconds(gateway, body) < COMPILE_SECONDS
    await engines.restart("e0", gateway)
    if known:
        await told(gateway, "engine e0 has compiled 1 known schemas")
    waited = await first_token_seconds(gateway, body)
    assert waited < COMPILE_SECONDS if known else waited > COMPILE_SECONDS
    # What the gateway asked by itself is nobody's.
    assert await gateway.grown("headworks_gateway_requests_total") == 3
    assert await gateway.grown("headworks_gateway_warmed_schemas_total", pool="main") == known


async def test_others_are_preferred_to_an_engine_that_compiles(gateway: RunningGateway, tmp_path: Path):
    with Engines(tmp_path, ["e0", "e1"]) as engines:
        await gateway.begin_anew(configuration(*engines.urls))
        assert (await gateway.call(formed(schema(), max_tokens=5)))[0] == 200
        await engines.restart("e0", gateway)
        for number in range(6):
            assert (await gateway.call(chat(f"question {number}", max_tokens=2)))[0] == 200
        assert "engine e0 has compiled" not in gateway.said(), "the engine was ready too soon for this test"
        assert await gateway.metric("headworks_gateway_engine_requests", engine="e0") == 0
        assert await finished(gateway, engines.urls[0]) == 0
        await told(gateway, "engine e0 has compiled 1 known schemas")
        for number in range(6):
            assert (await gateway.call(chat(f"question {number}", max_tokens=2)))[0] == 200
        assert await finished(gateway, engines.urls[0]) > 1


async def test_an_engine_that_is_new_in_a_pool_compiles_what_the_pool_uses(gateway: RunningGateway, tmp_path: Path):
    with Engines(tmp_path, ["e0", "e1"]) as engines:
        await gateway.begin_anew(configuration(engines.urls[0]))
        body = formed(schema(), max_tokens=5)
        assert await first_token_seconds(gateway, body) > COMPILE_SECONDS
        await gateway.publish(changed(configuration(*engines.urls), engines__e0__cordoned=True))
        await told(gateway, "engine e1 has compiled 1 known schemas")
        assert await first_token_seconds(gateway, body) < COMPILE_SECONDS
        assert await finished(gateway, engines.urls[1]) == 2


async def finished(gateway: RunningGateway, url: str) -> float:
    """Requests that an engine has finished since its start, by itself."""
    async with gateway.http.get(f"{url}/metrics") as answer:
        page = await answer.text()
    found = re.findall(r"^vllm:request_success_total\{.*\} (\S+)$", page, re.MULTILINE)
    assert found
    return sum(map(float, found))
