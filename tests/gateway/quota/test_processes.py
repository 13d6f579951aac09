"""Real gateways on one real Redis: what a client sees of limits that all of them hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.gateway.certificates import OwnCertificate
from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, configuration, running_gateway, usage
from tests.gateway.quota.gateways import off_loop, stopped
from tests.servers import Server, own_redis
from tests.services import Process, free_port, service_binary

pytestmark = pytest.mark.own_servers
LEASE_SECONDS = 2
PROMPT_TOKENS = 7


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


@asynccontextmanager
async def gateways(
    server: Server, folder: Path, content: dict[str, Any], count: int, **environment: str
) -> AsyncIterator[list[RunningGateway]]:
    await off_loop(server.start)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    # The machine may be busy with other things: no gateway of these tests goes alone for that.
    given = {"HEADWORKS_GATEWAY_REDIS_URL": f"{server.url}/0", "HEADWORKS_GATEWAY_REDIS_ANSWER_SECONDS": "1"}
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            own = folder / f"g{number}"
            own.mkdir()
            made.append(await stack.enter_async_context(running_gateway(own, content, {**given, **environment})))
        for gateway in made:
            await gateway.publish(live_gateways=count)
            await until_mode(gateway, "shared")
        yield made


async def until_mode(gateway: RunningGateway, mode: str) -> None:
    await gateway.until(lambda: gateway.metric("headworks_gateway_ledger", mode=mode), 1.0, f"limits to be {mode}")


async def statuses(gateways: list[RunningGateway], each: int, **fields: Any) -> list[int]:
    return await asyncio.gather(*(gateway.call_status(chat(**fields)) for _ in range(each) for gateway in gateways))


async def test_the_limit_is_one_limit_at_three_gateways_and_stays_one_when_the_redis_is_killed(
    engine: ScriptedEngine, server: Server, tmp_path: Path
):
    limit, cost = 600, 20
    engine.usage = usage(PROMPT_TOKENS, cost - PROMPT_TOKENS)
    content = changed(configuration(engine.url), tenants__alpha={"tpm_limit": limit})
    async with gateways(server, tmp_path, content, 3) as three:
        began = time.monotonic()

        async def race() -> None:
            assert set(await statuses(three, 15, max_tokens=cost - PROMPT_TOKENS)) <= {200, 429}
            allowed = limit + limit * (time.monotonic() - began) / 60
            assert len(engine.bodies) * cost <= allowed

        await race()
        assert len(engine.bodies) >= limit // cost
        for gateway in three:
            # Alone each begins with its part of what it last saw: all have seen what the others took.
            await gateway.until(partial(gateway.call_status, chat(max_tokens=cost - PROMPT_TOKENS)), 429, "it to see")
        await off_loop(server.kill)
        for gateway in three:
            await until_mode(gateway, "local")
        async with three[0].http.get(f"{three[0].url}/readyz") as answer:
            said = await answer.text()
        assert said == "ready\nquotas: this gateway holds 1/3 of every limit, for Redis is away (ConnectionError)\n"
        await race()
        await off_loop(server.start)
        for gateway in three:
            await until_mode(gateway, "shared")
        await race()
        assert len(engine.bodies) * cost >= limit


async def test_a_gateway_that_is_killed_gives_back_what_it_held(engine: ScriptedEngine, server: Server, tmp_path: Path):
    content = changed(configuration(engine.url), tenants__alpha={"max_parallel_requests": 2})
    times = {
        "HEADWORKS_GATEWAY_MAX_REQUEST_SECONDS": "1",
        "HEADWORKS_GATEWAY_LEASE_SECONDS": str(LEASE_SECONDS - 1),
    }
    async with gateways(server, tmp_path, content, 2, **times) as (one, other):
        engine.behave = engine.silence
        running = asyncio.create_task(one.call(chat(n=2)))
        await engine.arrived.wait()
        held_until = time.monotonic() + LEASE_SECONDS
        await asyncio.to_thread(one.process.kill)
        await asyncio.gather(running, return_exceptions=True)
        assert await other.refusal(chat()) == (429, "max_parallel_requests")
        engine.behave = engine.answer
        await other.until(lambda: other.call_status(chat(n=2)), 200, "the lease to lapse")
        assert time.monotonic() >= held_until - 0.5


async def test_clients_may_send_one_request_id_twice(engine: ScriptedEngine, server: Server, tmp_path: Path):
    engine.behave = engine.silence
    content = changed(configuration(engine.url), tenants__alpha={"max_parallel_requests": 2})
    async with gateways(server, tmp_path, content, 2) as two:
        named = {"X-Request-Id": "the-same"}
        calls = [asyncio.create_task(gateway.call(chat(), headers=named)) for gateway in two]
        await two[0].until(lambda: asyncio.sleep(0, engine.open_requests), 2, "both to run")
        assert await two[0].refusal(chat(), headers=named) == (429, "max_parallel_requests")
        engine.release.set()
        assert [(await call)[0] for call in calls] == [200, 200]


async def test_clients_that_leave_leave_nothing_at_the_redis(engine: ScriptedEngine, server: Server, tmp_path: Path):
    content = changed(configuration(engine.url), tenants__alpha={"max_parallel_requests": 3, "tpm_limit": 100_000})
    async with gateways(server, tmp_path, content, 1) as (one,):
        for stream in (False, True):
            engine.behave = engine.silence
            calls = [asyncio.create_task(one.call(chat(stream=stream))) for _ in range(3)]
            await one.until(lambda: asyncio.sleep(0, engine.open_requests), 3, "them to run")
            assert await one.refusal(chat()) == (429, "max_parallel_requests")
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            engine.behave = engine.answer
            await one.until(lambda: one.call_status(chat(n=3)), 200, "their places")
        with redis.Redis.from_url(server.url) as client:
            await one.until(lambda: asyncio.sleep(0, client.zcard("headworks:quota:{alpha}:leases")), 0, "no lease")


async def test_a_breaker_that_opens_at_one_gateway_is_open_at_the_other(
    engine: ScriptedEngine, server: Server, tmp_path: Path
):
    breaker = {"minimum_requests": 3, "error_permille": 500, "cooldown_ms": 60_000}
    content = changed(configuration(engine.url), pools__main__breaker=breaker)
    async with gateways(server, tmp_path, content, 2) as (one, other):
        assert await other.call_status(chat()) == 200
        engine.behave = engine.failing(500)

        async def opened() -> bool:
            return await one.call_status(chat()) == 503

        await one.until(opened, True, "the breaker to open")
        began = time.monotonic()
        is_open = {"pool": "main", "engine": "e0", "state": "open"}
        await other.until(lambda: other.metric("headworks_gateway_breaker_state", **is_open), 1.0, "it to be heard")
        print(f"heard by the other gateway's page after {(time.monotonic() - began) * 1000:.0f} ms at most")
        assert time.monotonic() - began < 1
        assert await other.refusal(chat()) == (503, "breaker_open")


async def test_a_slow_redis_does_not_make_requests_slow_and_nobody_reads_its_password(
    engine: ScriptedEngine, server: Server, tmp_path: Path
):
    content = changed(configuration(engine.url), tenants__alpha={"tpm_limit": 10_000})
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser("gateway", enabled=True, passwords=["+hidden-word"], categories=["+@all"], keys=["*"],
                           channels=["*"])  # fmt: skip
    address = server.url.removeprefix("redis://")
    secret = {
        "HEADWORKS_GATEWAY_REDIS_URL": f"redis://gateway:hidden-word@{address}/0",
        "HEADWORKS_GATEWAY_REDIS_ANSWER_SECONDS": "1",
    }
    async with gateways(server, tmp_path, content, 1, **secret) as (one,):
        assert await one.call_status(chat()) == 200
        with stopped(server):
            began = time.monotonic()
            assert await one.call_status(chat()) == 200
            for _ in range(10):
                assert await one.call_status(chat()) == 200
            assert time.monotonic() - began < 8, "one waits, and not ten"
            await until_mode(one, "local")
            async with one.http.get(f"{one.url}/metrics") as answer:
                page = await answer.text()
        await until_mode(one, "shared")
        log = one.process.log_tail()
        assert log.count("Redis is away") == 1
        for said in (page, log):
            assert "hidden-word" not in said
            assert address not in said


async def test_a_redis_behind_tls_is_reached(engine: ScriptedEngine, tmp_path: Path):
    own = OwnCertificate(tmp_path)
    port = free_port()
    argv: list[str | Path] = [
        service_binary("redis-server"),
        "--port",
        "0",
        "--tls-port",
        str(port),
        "--bind",
        "127.0.0.1",
    ]
    argv += ["--tls-cert-file", own.chain, "--tls-key-file", own.key, "--tls-auth-clients", "no", "--save", ""]
    content = changed(configuration(engine.url), tenants__alpha={"tpm_limit": 10_000})
    with Process(argv, log=tmp_path / "redis.log", cwd=tmp_path) as secure:
        secure.wait_for_port(port)
        environment = {
            "HEADWORKS_GATEWAY_REDIS_URL": f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={own.chain}",
            "HEADWORKS_GATEWAY_REDIS_ANSWER_SECONDS": "1",
        }
        async with running_gateway(tmp_path, content, environment) as gateway:
            await until_mode(gateway, "shared")
            assert await gateway.call_status(chat()) == 200
            assert await gateway.metric("headworks_gateway_ledger_requests_total", mode="shared") == 1
        untrusted = {"HEADWORKS_GATEWAY_REDIS_URL": f"rediss://127.0.0.1:{port}/0"}
        (tmp_path / "untrusted").mkdir()
        async with running_gateway(tmp_path / "untrusted", content, untrusted) as gateway:
            assert await gateway.call_status(chat()) == 200
            assert await gateway.metric("headworks_gateway_ledger", mode="local") == 1
