"""What went wrong with limits elsewhere, and cannot here: also where several gateways hold them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from gateway.view import compile_view
from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat
from tests.gateway.quota.gateways import Counting, counting, off_loop, until_alone, until_together
from tests.servers import Server, own_redis
from wire.snapshot import GatewaySnapshot, Tenant

pytestmark = pytest.mark.own_servers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


async def test_five_requests_at_once_pass_no_more_than_a_limit_of_a_hundred(server: Server):
    async with counting(server, Tenant(tpm_limit=100), 2) as gateways:
        leases = await asyncio.gather(*(gateway.taken(60) for gateway in (*gateways, *gateways, gateways[0])))
        assert sum(lease is not None for lease in leases) == 1


async def test_no_request_is_refused_for_ever_by_a_floor_above_a_small_limit(server: Server):
    """Where max_tokens is absent, the output that fits is what the limit of all gateways holds, or this one's share."""
    async with counting(server, Tenant(tpm_limit=100), 4) as gateways:
        assert gateways[0].quotas.largest_tokens("t") == 100
        assert await gateways[0].taken(100) is not None
        await off_loop(server.kill)
        await until_alone(gateways)
        assert gateways[0].quotas.largest_tokens("t") == 25
        await off_loop(server.start)
        await until_together(gateways)


async def test_what_counts_as_used_is_what_was_used_and_never_more(server: Server):
    dice = random.Random(7)
    async with counting(server, Tenant(daily_token_budget=10**9), 3) as gateways:
        used = 0

        async def serve(gateway: Counting) -> None:
            nonlocal used
            for _ in range(50):
                lease = await gateway.taken(dice.randrange(100))
                assert lease is not None
                await asyncio.sleep(0)
                tokens = dice.randrange(200)
                used += tokens
                lease.settle(tokens, reached_engine=dice.random() < 0.5)
                lease.settle(0, reached_engine=True)

        await asyncio.gather(*(serve(gateway) for gateway in gateways))
        await until_together(gateways)
        for gateway in gateways:
            gateway.configure(Tenant(daily_token_budget=used + 1), 3, revision=2)
        assert await gateways[0].taken(2) is None
        assert await gateways[1].taken(1) is not None


async def test_one_gateway_may_be_asked_for_all_of_a_limit(server: Server):
    async with counting(server, Tenant(tpm_limit=1_000, rpm_limit=8, max_parallel_requests=4), 4) as gateways:
        assert await gateways[0].taken(1_000, 4) is not None


async def test_one_tenants_limit_does_not_touch_another(server: Server):
    async with counting(server, Tenant(tpm_limit=100), 2) as gateways:
        tenants = {"t": Tenant(tpm_limit=100), "u": Tenant(tpm_limit=100), "free": Tenant()}
        for gateway in gateways:
            gateway.quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants=tenants), 2), 2)
        assert await gateways[0].taken(100) is not None
        assert await gateways[1].taken(1) is None
        await gateways[1].quotas.reserve("u", 100, 1)
        await gateways[1].quotas.reserve("free", 10**6, 1)


async def test_a_request_is_charged_by_its_tokens_before_it_streams(gateway: RunningGateway, engine: ScriptedEngine):
    engine.behave = engine.one_token_then_silence
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 1_000}))
    stream = await gateway.open_stream(chat(stream=True, max_tokens=300))
    prompt = int(stream.headers["x-headworks-prompt-tokens"].split(";")[0])
    left = int(stream.headers["x-ratelimit-remaining-tokens"])
    assert 1_000 - prompt - 300 <= left <= 1_000 - prompt - 300 + 100, "and not 999"
    engine.release.set()
    await stream.read()


async def test_a_gateway_that_ends_tells_what_its_last_requests_used(server: Server):
    async with counting(server, Tenant(tpm_limit=1_000), 2) as (one, other):
        lease = await one.taken(1_000)
        assert lease is not None
        lease.settle(10, reached_engine=True)
        await one.quotas.close(5)
        assert await other.taken(980) is not None


async def test_connections_to_a_redis_that_was_there_before_do_not_take_the_new_one_down(server: Server):
    async with counting(server, Tenant(tpm_limit=100), 1) as (gateway,):
        client = gateway.link.client
        assert client is not None
        await asyncio.gather(*(client.ping() for _ in range(20)))
        await off_loop(server.kill)
        await until_alone([gateway])
        await off_loop(server.start)
        await until_together([gateway])
        assert await asyncio.gather(*(client.ping() for _ in range(20))) == [True] * 20
