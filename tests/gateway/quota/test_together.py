"""Gateways that count on one Redis hold each limit together, also while it comes and goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
import redis

from gateway.refusals import Refused
from gateway.view import compile_view
from tests.gateway.quota.gateways import Counting, counting, off_loop, stopped, until, until_alone, until_together
from tests.servers import Server, own_redis
from wire.snapshot import GatewaySnapshot, Tenant

pytestmark = pytest.mark.own_servers
MINUTE_SECONDS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


async def test_gateways_that_race_take_the_limit_and_not_a_token_more(server: Server):
    async with counting(server, Tenant(tpm_limit=1_000, max_parallel_requests=10_000), 4) as gateways:
        taken = await asyncio.gather(*(gateway.uses(7) for _ in range(100) for gateway in gateways))
        began = time.monotonic()
        assert 1_000 - 7 < sum(taken) <= 1_000 + 1_000 * (time.monotonic() - began + 5) / MINUTE_SECONDS
        assert {gateway.quotas.moment().requests_local for gateway in gateways} == {0}


async def test_a_gateway_says_what_all_have_left(server: Server):
    async with counting(server, Tenant(tpm_limit=60), 2) as (one, other):
        await one.uses(40)
        assert await other.taken(5) is not None
        assert 15 <= other.left() <= 16
        refusal = await other.refusal(30)
        assert (refusal.reason, refusal.numbers["limit"]) == ("tpm_limit", 60)
        assert (await other.refusal(61)).reason == "never_fits"


async def test_sequences_count_at_all_gateways_and_come_back(server: Server):
    async with counting(server, Tenant(max_parallel_requests=3), 2) as (one, other):
        lease = await one.taken(1, 2)
        assert lease is not None
        assert (await other.refusal(1, 2)).message == (
            "2 sequences are asked for and 2 of 3 parallel sequences are running"
        )
        lease.settle(1, reached_engine=True)
        await until(lambda: not one.waiting(), "its end to be told")
        assert await other.taken(1, 3) is not None


async def test_a_limit_that_is_lowered_bites_at_all_gateways_whoever_hears_of_it_first(server: Server):
    async with counting(server, Tenant(tpm_limit=6_000), 2) as (one, other):
        await one.uses(1_000)
        one.configure(Tenant(tpm_limit=100), 2, revision=2)
        assert await one.taken(90) is None
        assert await other.taken(90) is None, "it has the older revision"
        assert (await other.refusal(200)).reason == "never_fits"
        other.configure(Tenant(tpm_limit=6_000), 2, revision=3)
        assert await other.taken(200) is not None
        assert await one.taken(5_000) is None, "what was used before is kept"
        assert await one.taken(4_700) is not None, "it has the older revision"


async def test_a_tenant_without_limits_asks_nobody(server: Server):
    async with counting(server, Tenant(), 1) as (one,):
        lease = await one.taken(10**9, 50)
        assert lease is not None
        lease.settle(1, reached_engine=True)
        with redis.Redis.from_url(server.url) as client:
            assert client.keys("headworks:quota:*") == []


async def test_a_request_that_is_cancelled_while_it_asks_holds_nothing(server: Server):
    async with counting(server, Tenant(tpm_limit=60, max_parallel_requests=1), 1) as (one,):
        asking = asyncio.create_task(one.taken(60))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not one.waiting(), "it to be undone")
        assert await one.taken(60) is not None


async def test_a_redis_that_is_silent_holds_up_one_request_shortly_and_later_ones_not_at_all(server: Server):
    async with counting(server, Tenant(tpm_limit=60_000, max_parallel_requests=50), 1, answer_seconds=0.5) as (one,):
        with stopped(server):
            began = time.monotonic()
            assert await one.taken(10) is not None
            assert time.monotonic() - began < 5
            began = time.monotonic()
            for _ in range(40):
                assert await one.taken(10) is not None
            assert time.monotonic() - began < 10, "nobody is asked"
            assert "no answer within 500 ms" in one.quotas.told()
        await until_together([one])
        # The one that was given up may have been read by the Redis later.
        assert await one.taken(10, 9) is not None
        assert await one.taken(10, 1) is None, "41 and 9 sequences run"


def calls(client: redis.Redis, command: str) -> int:
    """How often the Redis was asked it, in vain included."""
    told = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0, "rejected_calls": 0})
    return int(told["calls"]) + int(told["rejected_calls"])


async def look(gateway: Counting) -> int:
    assert await gateway.taken(0, 0) is not None
    return gateway.left()


async def test_a_redis_that_takes_no_writes_is_away_until_it_does(server: Server, caplog: pytest.LogCaptureFixture):
    async with counting(server, Tenant(tpm_limit=1_000), 1) as (one,):
        with redis.Redis.from_url(server.url) as client:
            client.config_set("min-replicas-to-write", 1)
            assert await one.uses(100) == 100, "by its share"
            looks = calls(client, "set")
            await until(lambda: calls(client, "set") >= looks + 2, "it to be looked for again")
            assert sum("Redis is away" in record.message for record in caplog.records) == 1
            assert not one.quotas.is_together
            client.config_set("min-replicas-to-write", 0)
        await until_together([one])
        assert 900 <= await look(one) <= 900 + 1_000 * 10 / MINUTE_SECONDS


@pytest.mark.parametrize("gateways", [1, 4])
async def test_a_redis_that_loses_its_data_does_not_fill_the_bucket(server: Server, gateways: int):
    limit = 6_000
    async with counting(server, Tenant(tpm_limit=limit), gateways) as counted:
        began = time.monotonic()
        used = 0
        while (taken := sum([await gateway.uses(100) for gateway in counted])) > 0:
            used += taken
        for _ in range(3):
            await off_loop(server.kill)
            await until_alone(counted)
            for gateway in counted:
                used += sum([await gateway.uses(10) for _ in range(50)])
            await off_loop(server.start)
            await until_together(counted)
            for gateway in counted:
                used += sum([await gateway.uses(10) for _ in range(50)])
        allowed = limit + limit * (time.monotonic() - began) / MINUTE_SECONDS
        assert used <= allowed
        assert used >= 0.9 * allowed - 500, "what was refilled meanwhile is given out"


async def test_a_loss_gives_at_most_once_more_what_others_took_since_however_often_it_comes(server: Server):
    limit = 1_200
    async with counting(server, Tenant(tpm_limit=limit), 4) as counted:
        began = time.monotonic()
        for gateway in counted[1:]:
            assert await gateway.taken(0, 0) is not None, "it has seen a full bucket"
        used = await counted[0].uses(limit)
        assert used == limit
        for _ in range(4):
            await off_loop(server.kill)
            await until_alone(counted)
            for gateway in counted:
                used += sum([await gateway.uses(10) for _ in range(200)])
            await off_loop(server.start)
            await until_together(counted)
            used += sum([await counted[0].uses(10) for _ in range(20)])
        allowed = limit + limit * (time.monotonic() - began) / MINUTE_SECONDS
        assert limit * 7 / 4 - 60 <= used <= allowed * 7 / 4, "three of four gateways saw nothing of it"


async def test_what_a_loss_gives_cannot_be_taken_together_and_given_again(server: Server):
    limit = 1_200
    async with counting(server, Tenant(tpm_limit=limit), 4) as counted:
        began = time.monotonic()
        used = 0
        for _ in range(6):
            for gateway in counted[1:]:
                # It has seen what is left.
                await gateway.taken(0, 0)
            used += sum([await counted[0].uses(10) for _ in range(150)])
            await off_loop(server.kill)
            await until_alone(counted)
            await off_loop(server.start)
            await until_together(counted)
        allowed = limit + limit * (time.monotonic() - began) / MINUTE_SECONDS
        assert used <= 2 * allowed


async def test_ends_of_requests_wait_for_the_redis_and_what_ran_alone_runs_on_together(server: Server):
    tenant = Tenant(tpm_limit=1_000, rpm_limit=1_000, max_parallel_requests=8)
    async with counting(server, tenant, 2) as (one, other):
        together = [await one.taken(100, 2) for _ in range(2)]
        await off_loop(server.kill)
        await until_alone([one, other])
        alone = await other.taken(100, 3)
        assert alone is not None
        assert together[0] is not None
        together[0].settle(0, reached_engine=True)
        assert one.waiting() == 1
        await off_loop(server.start)
        await until_together([one, other])
        assert (await one.refusal(1, 4)).numbers == {"asked": 4, "running": 5, "limit": 8}
        for lease in (together[1], alone):
            assert lease is not None
            lease.settle(0, reached_engine=True)
            lease.settle(0, reached_engine=True)
        await until_together([one, other])
        assert await one.taken(1, 8) is not None, "nothing runs any more"


async def test_a_gateway_that_alone_was_cut_off_tells_what_it_used(server: Server):
    async with counting(server, Tenant(tpm_limit=1_000, daily_token_budget=10_000), 2) as (one, other):
        await one.uses(100)
        one.link.failed(OSError(0, "cut off"))
        assert await one.uses(200) == 200
        assert await other.uses(100) == 100
        await until_together([one])
        assert 600 <= await look(one) <= 600 + 1_000 * 15 / MINUTE_SECONDS
        assert (await other.refusal(9_700)).reason == "never_fits"
        one.configure(Tenant(daily_token_budget=1_000), 2, revision=2)
        assert (await one.refusal(601)).numbers["left"] == 600


async def test_a_budget_of_a_day_outlives_the_data_of_the_redis(server: Server):
    async with counting(server, Tenant(daily_token_budget=1_000), 2) as (one, other):
        await one.uses(400)
        await other.uses(200)
        await off_loop(server.kill)
        await until_alone([one, other])
        assert await one.uses(301) == 0, "half of the 600 that it saw to be left"
        assert await other.uses(201) == 0, "half of the 400 that it saw to be left"
        assert await one.uses(150) == 150
        assert await other.uses(150) == 150
        await off_loop(server.start)
        await until_together([one, other])
        assert (await one.refusal(400)).numbers["left"] == 100
        assert await other.uses(101) == 0


async def test_what_is_too_much_for_one_gateway_is_not_refused_for_ever(server: Server):
    tenant = Tenant(tpm_limit=1_000, max_parallel_requests=4, daily_token_budget=10_000)
    async with counting(server, tenant, 4) as counted:
        await off_loop(server.kill)
        await until_alone(counted)
        refusal = await counted[0].refusal(900)
        assert refusal.reason == "tpm_limit"
        assert "this one has 250 of the 1000 a minute" in refusal.message
        assert (await counted[0].refusal(1, 4)).reason == "max_parallel_requests"
        assert (await counted[0].refusal(5_000)).reason == "never_fits"
        assert counted[0].quotas.told().startswith("this gateway holds 1/4 of every limit")
        await off_loop(server.start)
        await until_together(counted)


async def test_a_redis_that_is_back_hears_of_who_asks_first_and_of_the_others_by_and_by(server: Server):
    tenants = {f"t{number}": Tenant(tpm_limit=100) for number in range(500)}
    async with counting(server, Tenant(), 1) as (one,):
        back = asyncio.Event()
        one.link.uses("return 1", back.set, lambda: None)
        one.quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants=tenants), 2), 1)
        await one.quotas.reserve("t0", 0, 1)
        await off_loop(server.kill)
        await until_alone([one])
        for name in tenants:
            one.quotas.take(name, 60, 1).settle(60, reached_engine=True)
        await off_loop(server.start)
        await back.wait()
        with pytest.raises(Refused) as caught:
            await one.quotas.reserve("t499", 60, 1)
        assert caught.value.reason == "tpm_limit", "it heard first what was taken alone"
        assert one.waiting() > 300, "nobody waits for what is told of all"
        await until_together([one])
        with redis.Redis.from_url(server.url) as client:
            assert len(client.keys("headworks:quota:{*}")) == len(tenants)


async def test_an_answer_that_is_none_holds_up_nobody(server: Server):
    async with counting(server, Tenant(tpm_limit=100), 1) as (one,):
        await one.uses(1)
        with redis.Redis.from_url(server.url) as client:
            client.hset("headworks:quota:{t}", "taken", "nan")
            async with asyncio.timeout(10):
                assert await one.taken(1) is not None, "by its share"
            client.delete("headworks:quota:{t}")
        await until_together([one])
        assert await one.taken(1) is not None
