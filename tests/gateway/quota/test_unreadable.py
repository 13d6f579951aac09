"""What somebody else wrote where one tenant's quota stands concerns that tenant alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, cast

import pytest
import redis

from gateway.quota.metrics import ledger_families
from gateway.view import compile_view
from tests.gateway.quota.gateways import Counting, counting, until
from tests.servers import Server, own_redis
from wire.snapshot import GatewaySnapshot, Tenant

pytestmark = pytest.mark.own_servers
KEY, LEASES = "headworks:quota:{t}", "headworks:quota:{t}:leases"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def with_two_tenants(*gateways: Counting) -> None:
    tenants = {"t": Tenant(tpm_limit=100), "u": Tenant(tpm_limit=100)}
    for gateway in gateways:
        gateway.quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants=tenants), 2), len(gateways))


def a_text(client: redis.Redis) -> None:
    client.set(KEY, "by hand")


def leases_that_are_a_list(client: redis.Redis) -> None:
    client.delete(LEASES)
    client.rpush(LEASES, "x")


def a_field(name: str, value: str) -> Callable[[redis.Redis], None]:
    def write(client: redis.Redis) -> None:
        client.hset(KEY, name, value)

    return write


def a_lease_that_has_lapsed(client: redis.Redis) -> None:
    client.hset(KEY, "l:x", "1 2 three")
    client.zadd(LEASES, {"x": 1})


def unreadable_on_the_page(gateway: Counting) -> list[tuple[str, float]]:
    families = {family.name: family for family in ledger_families(gateway.quotas.moment())}
    samples = families["headworks_gateway_ledger_unreadable"].samples
    return [(sample.labels["tenant"], sample.value) for sample in samples]


def held(client: redis.Redis, field: str) -> int:
    return int(cast("bytes", client.hget(KEY, field)))


BREAKS: list[Callable[[redis.Redis], None]] = [
    a_text,
    leases_that_are_a_list,
    a_field("t_level", "many"),
    a_field("running", ""),
    a_field("at", "1e999"),
    a_field("taken", "nan"),
    a_lease_that_has_lapsed,
]


@pytest.mark.parametrize("break_it", BREAKS)
async def test_a_state_that_cannot_be_read_is_its_tenants_alone(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture, break_it: Callable[[redis.Redis], None]
):
    async with counting(server, Tenant(tpm_limit=100), 2) as (one, other):
        with_two_tenants(one, other)
        await one.uses(1)
        await until(lambda: not one.waiting(), "its end to be told")
        break_it(client)
        written = client.dump(KEY)
        assert await one.taken(48) is not None, "by its share, half of what is left"
        refusal = await one.refusal(48)
        assert refusal.reason == "tpm_limit"
        for _ in range(3):
            (await one.quotas.reserve("u", 30, 1)).settle(30, reached_engine=True)
        with pytest.raises(Exception, match="30 tokens are asked for"):
            await other.quotas.reserve("u", 30, 1)
        assert one.quotas.is_together
        assert one.quotas.numbers("u")["counted_together"] == 1
        assert one.quotas.numbers("t")["counted_together"] == 0
        assert one.quotas.told().startswith("counted together with the other gateways on Redis; of t by this gateway's")
        (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warning.startswith("the quota of tenant t at the Redis cannot be read")
        assert client.dump(KEY) == written, "what is not the gateway's is left as it is"


@pytest.mark.parametrize("broken", ["lapsed", "its own"])
async def test_a_lease_that_cannot_be_read_loses_no_other_one(
    server: Server, client: redis.Redis, broken: Literal["lapsed", "its own"]
):
    async with counting(server, Tenant(max_parallel_requests=8), 1) as (one,):
        lost, mine = await one.taken(10), await one.taken(10)
        assert lost is not None
        assert mine is not None
        client.zadd(LEASES, {lost.id: 1})
        unreadable = "x" if broken == "lapsed" else mine.id
        written = client.hget(KEY, f"l:{mine.id}")
        client.hset(KEY, f"l:{unreadable}", "1 2 three")
        if broken == "lapsed":
            # After the one that can be read.
            client.zadd(LEASES, {unreadable: 2})
        mine.settle(5, reached_engine=True)
        await until(lambda: one.quotas.moment().unreadable == ("t",), "it to be found")
        assert held(client, "running") == 2
        assert client.zcard(LEASES) == (3 if broken == "lapsed" else 2), "none has ended"
        if broken == "lapsed":
            client.hdel(KEY, f"l:{unreadable}")
        else:
            client.hset(KEY, f"l:{unreadable}", cast("bytes", written))
        await until(lambda: not one.waiting(), "its end to be told")
        assert held(client, "running") == 1, "the gateway has told of the one that lapsed, for it runs"
        lost.settle(5, reached_engine=True)
        await until(lambda: not one.waiting(), "its end to be told")
        assert held(client, "running") == 0


async def test_a_scrape_names_the_tenant(server: Server, client: redis.Redis):
    async with counting(server, Tenant(tpm_limit=100), 1) as (one,):
        a_text(client)
        await one.taken(1)
        assert unreadable_on_the_page(one) == [("t", 1)]
        client.delete(KEY)
        await until(lambda: one.quotas.moment().unreadable == (), "it to be counted together")
        assert unreadable_on_the_page(one) == []


async def test_once_it_is_deleted_all_that_was_taken_is_counted_together_again(server: Server, client: redis.Redis):
    async with counting(server, Tenant(daily_token_budget=1_000, max_parallel_requests=8), 2) as (one, other):
        running, ended = await one.taken(100), await one.taken(200)
        assert running is not None
        assert ended is not None
        assert await other.taken(10) is not None
        a_text(client)
        alone = await one.taken(50)
        assert alone is not None
        assert await other.taken(50) is not None, "it finds out by itself"
        ended.settle(150, reached_engine=True)
        client.delete(KEY, LEASES)
        await until(lambda: not (one.quotas.moment().unreadable or other.quotas.moment().unreadable), "both to be back")
        await until(lambda: not (one.waiting() or other.waiting()), "both to have told")
        # 100 and 50 here, 10 and 50 there; the one that ended is settled.
        assert held(client, "running") == 4
        assert await one.taken(1, 5) is None
        running.settle(100, reached_engine=True)
        alone.settle(50, reached_engine=True)
        await until(lambda: not one.waiting(), "their ends to be told")
        assert held(client, "running") == 2
        assert held(client, "taken") == 100 + 150 + 50 + 10 + 50


async def test_a_tenant_that_is_removed_meanwhile_is_looked_at_no_more(server: Server, client: redis.Redis):
    async with counting(server, Tenant(tpm_limit=100), 1) as (one,):
        lease = await one.taken(10)
        assert lease is not None
        a_text(client)
        await one.taken(1)
        lease.settle(5, reached_engine=True)
        one.quotas.configure(compile_view(GatewaySnapshot(schema=1), 3), 1)
        await until(lambda: not one.waiting(), "what waited to be given up")
        assert one.quotas.moment().unreadable == ()
        assert one.quotas.moment().lapsed >= 1
        assert client.get(KEY) == b"by hand"
